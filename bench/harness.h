/* How the map bench measures: threads that start together, rows that are played in turn. */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "peers.h"

enum mode { ALONE, BOTH, ACROSS, MODES };

/* -- threads -- */

inline double now_ns(clockid_t clock = CLOCK_MONOTONIC) {
    timespec t;
    clock_gettime(clock, &t);
    return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Two threads that live as long as the bench, each on a processor of its own: a contender that
   remembers which thread owns what sees the same two all the time, as in a server. */
class crew {
public:
    crew() {
        cpu_set_t all;
        if (sched_getaffinity(0, sizeof all, &all) != 0) CPU_ZERO(&all);
        for (int cpu = 0; cpu < CPU_SETSIZE && threads_.size() < 2; cpu++) {
            if (!CPU_ISSET(cpu, &all)) continue;
            int id = static_cast<int>(threads_.size());
            threads_.emplace_back([this, id, cpu] { work(id, cpu); });
        }
    }
    ~crew() {
        post(0, {});
        for (std::thread &t : threads_) t.join();
    }
    int size() const { return static_cast<int>(threads_.size()); }

    /* Runs job(0) .. job(n - 1), which begin together. Returns the ns from the first start to the
       last end. One thread alone waits for nobody: of it the processor time is taken, so that what
       else runs on a busy machine is not in it. */
    double run(int n, std::function<void(int)> job) {
        ready_ = 0;
        post(n, std::move(job));
        std::unique_lock<std::mutex> hold(lock_);
        done_.wait(hold, [&] { return left_ == 0; });
        return *std::max_element(end_, end_ + n) - *std::min_element(begin_, begin_ + n);
    }

private:
    void post(int n, std::function<void(int)> job) {
        std::lock_guard<std::mutex> hold(lock_);
        job_ = std::move(job);
        count_ = left_ = n;
        turn_++;
        wake_.notify_all();
    }
    void work(int id, int cpu) {
        cpu_set_t mine;
        CPU_ZERO(&mine);
        CPU_SET(cpu, &mine);
        (void)sched_setaffinity(0, sizeof mine, &mine);
        for (uint64_t seen = 0;;) {
            {
                std::unique_lock<std::mutex> hold(lock_);
                wake_.wait(hold, [&] { return turn_ != seen; });
                seen = turn_;
                if (count_ == 0) return;
                if (id >= count_) continue;
            }
            clockid_t clock = count_ == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
            ready_++;
            while (ready_ < count_) relax();
            begin_[id] = now_ns(clock);
            job_(id);
            end_[id] = now_ns(clock);
            std::lock_guard<std::mutex> hold(lock_);
            if (--left_ == 0) done_.notify_one();
        }
    }

    std::mutex lock_;
    std::condition_variable wake_, done_;
    std::function<void(int)> job_;
    int count_ = 0, left_ = 0;
    uint64_t turn_ = 0;
    std::atomic<int> ready_{0};
    double begin_[2] = {}, end_[2] = {};
    std::vector<std::thread> threads_;
};

/* Hands blocks from the thread that allocates to the one that frees, a few at a time so that
   the ring itself costs little. Holds fewer than the traces' delay. */
class ring {
public:
    enum { CAPACITY = 1024, BATCH = 16 };
    void start() { head_ = tail_ = 0; }
    template <class Next> void give(size_t n, Next next) {
        size_t tail = 0;
        for (size_t head = 0; head < n;) {
            while (head - tail > CAPACITY - BATCH) {
                relax();
                tail = tail_.load(std::memory_order_acquire);
            }
            size_t stop = std::min(n, head + BATCH);
            for (; head < stop; head++) keys_[head % CAPACITY] = next();
            head_.store(head, std::memory_order_release);
        }
    }
    template <class Use> void take(size_t n, Use use) {
        for (size_t tail = 0; tail < n;) {
            size_t head = head_.load(std::memory_order_acquire);
            if (head == tail) relax();
            for (; tail < head; tail++) use(keys_[tail % CAPACITY]);
            tail_.store(tail, std::memory_order_release);
        }
    }

private:
    alignas(64) uint64_t keys_[CAPACITY];
    alignas(64) std::atomic<size_t> head_{0};
    alignas(64) std::atomic<size_t> tail_{0};
};

/* -- rows -- */

struct mix {
    uint32_t devices, sites;
};

struct range {
    size_t from, to;
};

/* One line of the tables: a contender, with a container for each mode. */
class row {
public:
    std::string name;
    mix what;
    std::vector<double> ns[MODES]; /* per pair, one for each round */
    size_t at[MODES] = {};         /* steps of the trace played so far */
    row(std::string text, mix m) : name(std::move(text)), what(m) {}
    virtual ~row() = default;
    virtual void open(mode m, size_t blocks) = 0;
    virtual void shut() = 0;
    virtual void fill(mode m, const trace &t) = 0;
    virtual void own(mode m, const trace &t, range r) = 0;
    virtual void give(const trace &t, range r, ring &to) = 0;
    virtual void take(size_t n, ring &from) = 0;
    virtual verdict state(mode m) const = 0;
};

template <class Peer> class row_of final : public row {
public:
    using maker = std::function<std::unique_ptr<Peer>(size_t blocks)>;
    row_of(std::string text, mix m, maker make) : row(std::move(text), m), make_(make) {}

    void open(mode m, size_t blocks) override { peers_[m] = make_(blocks); }
    void shut() override {
        for (auto &p : peers_) p.reset();
    }
    void fill(mode m, const trace &t) override {
        Peer &p = *peers_[m];
        mix w = what;
        p.enter();
        for (size_t i = 0; i < t.fill.size(); i++)
            opens(p, w, t.fill[i], t.first_slot + static_cast<uint32_t>(i));
        p.leave();
    }
    void own(mode m, const trace &t, range r) override {
        Peer &p = *peers_[m];
        const op *o = t.churn.data() + r.from, *end = t.churn.data() + r.to;
        const uint32_t *slot = t.slots.data() + r.from;
        mix w = what;
        p.enter();
        for (; o != end; o++, slot++) {
            p.closes(p.leaves(*o, *slot), site(w, *o));
            opens(p, w, *o, *slot);
        }
        p.leave();
    }
    void give(const trace &t, range r, ring &to) override {
        Peer &p = *peers_[ACROSS];
        const op *o = t.churn.data() + r.from;
        const uint32_t *slot = t.slots.data() + r.from;
        mix w = what;
        p.enter();
        to.give(r.to - r.from, [&] {
            uint64_t key = p.leaves(*o, *slot);
            opens(p, w, *o++, *slot++);
            return key;
        });
        p.leave();
    }
    void take(size_t n, ring &from) override {
        Peer &p = *peers_[ACROSS];
        p.enter();
        from.take(n, [&](uint64_t key) { p.closes(key, 0); });
        p.leave();
    }
    verdict state(mode m) const override { return peers_[m] ? peers_[m]->state() : verdict{}; }

private:
    static uint32_t site(mix w, const op &o) {
        return static_cast<uint32_t>(o.who) * w.sites >> 10;
    }
    static void opens(Peer &p, mix w, const op &o, uint32_t slot) {
        p.opens(o, slot, static_cast<uint32_t>(o.who) * w.devices >> 10, site(w, o));
    }

    maker make_;
    std::unique_ptr<Peer> peers_[MODES];
};

/* -- numbers -- */

inline double median(std::vector<double> v) {
    if (v.empty()) return 0;
    std::sort(v.begin(), v.end());
    size_t n = v.size();
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

#endif

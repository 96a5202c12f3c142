"""The model of pools, collections, bands, and requests that find no memory."""

from script import (E_INVALID, E_LIMIT, E_OOM, E_STATE, E_UNKNOWN, OK)

REASON_BAND, REASON_OOM, REASON_LIMIT = 0, 1, 2
ALLOCATED, FREED, MAX, RESERVED, CACHED = range(5)  # metrics of bands


class Oom:
    """The last request of a device that found no memory."""

    def __init__(self, bytes, live, used, site):
        self.bytes, self.live, self.used, self.site = bytes, live, used, site


class Band:
    """A band with a threshold in bytes."""

    def __init__(self, lo, hi, metric, bytes):
        self.lo, self.hi, self.metric, self.bytes = lo, hi, metric, bytes
        self.waits, self.at_end = False, None


class Reclaim:
    def reclaim_begin(self):
        self.gc_answer = (0, 0, 0)
        self.callbacks = []  # (selector, reasons)
        self.bands = {}      # by device
        self.collecting = False

    # -- pools --

    def op_pool_set(self, device, reserved, largest_free):
        row = self.device(device)
        row.reserved = reserved
        row.reserved_peak = max(row.reserved_peak, reserved)
        row.largest_free = None if largest_free == (1 << 64) - 1 else largest_free
        return OK

    def op_pool_add(self, device, delta):
        row = self.device(device)
        if row.reserved + delta < 0:
            return self.refuse(E_INVALID, device)
        row.reserved += delta
        row.reserved_peak = max(row.reserved_peak, row.reserved)
        return OK

    def op_pool_served(self, device, hits, misses):
        row = self.device(device)
        row.count["cache_hits"] += hits
        row.count["cache_misses"] += misses
        return OK

    # -- collections --

    def op_gc_answer(self, ran, family, reclaimed):
        self.gc_answer = (ran, family, reclaimed)
        return OK

    def op_gc_callback(self, selector, reasons):
        self.callbacks.append((selector, reasons))
        return OK

    def serving(self, device, reason):
        """The number of callbacks that serve a reason for a device."""
        return sum(1 for selector, reasons in self.callbacks
                   if self.selects(selector, device) and
                   (not reasons or reasons >> reason & 1))

    def collect(self, device, reason):
        """Runs the callbacks of a device. Returns whether one could."""
        serving = self.serving(device, reason)
        if not serving:
            return E_UNKNOWN
        ran, family, reclaimed = self.gc_answer
        device.count["gc_runs" if ran else "gc_failed"] += 1
        if ran:
            device.count["gc_reclaimed"] += reclaimed * serving
            for other in self.devices:
                if other is device or (family and other.type == device.type):
                    other.since_gc = 0
            self.event("gc", device, 0, reclaimed * serving)
        return OK if ran else E_STATE

    def op_gc_run(self, device, reason):
        row = self.known(device)
        return self.collect(row, reason) if row else E_UNKNOWN

    def op_gc_poll(self, selector):
        self.snapshot_due()
        self.retire(selector)
        for device in self.devices:
            if self.selects(selector, device):
                self.refresh(device.physical, 1)
                self.check_bands(device)
        return OK

    def op_strategy(self, device, lo, hi, metric, bytes, percent, combine):
        assert not percent and bytes, "the model knows bands in bytes alone"
        self.bands[self.device(device)] = Band(lo, hi, metric, bytes)
        return OK

    def covers(self, band, physical):
        """Whether a band has the used part of the capacity, or of the limit if only that is
        known."""
        if physical.sample:
            used = self.used(physical, by_bands=True) * 100.0 / physical.sample.total
        elif physical.limit:
            used = self.live_on(physical) * 100.0 / physical.limit
        else:
            return band.lo <= 0 and band.hi > 100
        return band.lo <= used and (used < band.hi or band.hi > 100)

    def metric(self, device, band):
        if band.metric == ALLOCATED:
            return device.live
        if band.metric == FREED:
            return device.since_gc
        return max(device.live, device.since_gc)

    def check_bands(self, device):
        """Collects where the band of a device is due."""
        band = self.bands.get(device)
        if not band or not self.serving(device, REASON_BAND) or \
                not self.covers(band, device.physical):
            return
        value, eighth = self.metric(device, band), band.bytes // 8
        if band.waits and (value < band.bytes - eighth or value >= band.at_end + max(eighth, 1)):
            band.waits = False
        if not band.waits and value >= band.bytes:
            self.collect(device, REASON_BAND)
            band.waits, band.at_end = True, self.metric(device, band)

    # -- out of memory --

    def attempt_failed(self, device, bytes):
        device.count["oom_attempts"] += 1
        self.event("oom", device, 0, bytes)

    def note_oom(self, device, bytes, site):
        physical = device.physical
        used = self.used(physical) if physical.sample else None
        device.oom = Oom(bytes, self.live_on(physical), used,
                         None if site is None else self.site_of[site])
        device.count["oom_failures"] += 1

    def reserve_request(self, device, bytes):
        """Reserves what the thread's tickets do not cover, after a collection if need be."""
        covered = sum(t.left for t in self.thread().tickets
                      if t.open and t.physical is device.physical)
        wanted = bytes - min(bytes, covered)
        for try_again in (lambda: True, self.retire,
                          lambda: self.collect(device, REASON_LIMIT) == OK):
            if try_again() and (not wanted or self.fits(device.physical, wanted)):
                return OK
        return E_LIMIT

    def op_alloc_retry(self, device, bytes, site, retries, *outcomes):
        row = self.device(device)
        if self.reserve_request(row, bytes):
            self.refresh(row.physical, 1)
            return E_LIMIT
        for attempt in range(retries + 1):
            row.count["retries"] += attempt > 0
            outcome = outcomes[attempt]
            if outcome not in ("+", "-"):
                row.count["recoveries"] += attempt > 0
                self.open(device, int(outcome, 0), bytes, site)
                self.draw(device, bytes)
                return OK
            self.attempt_failed(row, bytes)
            if outcome == "-" or attempt == retries:
                break
            self.take_sample(row.physical)
            self.retire()
            self.collect(row, REASON_OOM)
            self.now += min(int(50 * 1.5 ** attempt), 100) * 1_000_000
        self.take_sample(row.physical)
        self.note_oom(row, bytes, site)
        return E_OOM

    def op_alloc_failed(self, device, bytes, site):
        row = self.device(device)
        self.attempt_failed(row, bytes)
        self.refresh(row.physical, 1)
        self.note_oom(row, bytes, site)
        return OK

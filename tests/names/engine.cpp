// Containers, which the compiler inlines many levels deep into the program's own functions.
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Layer {
    std::vector<float> weights;
    std::string name;
};
namespace engine {
template <class T> struct Pool {
    std::vector<std::unique_ptr<T>> all;
    void add(std::unique_ptr<T> one) { all.push_back(std::move(one)); }
};
}
static engine::Pool<Layer> layers;
static std::map<std::string, std::vector<int>> words;

static inline std::unique_ptr<Layer> make_layer(int n) {
    auto layer = std::make_unique<Layer>();
    layer->weights.resize((size_t)n);
    layer->name = "layer_with_a_long_name_" + std::to_string(n);
    return layer;
}
__attribute__((noinline)) void load_model() {
    for (int i = 0; i < 20; i++) layers.add(make_layer(20000 + i));
}
__attribute__((noinline)) void load_words() {
    for (int i = 0; i < 200; i++) words["word_number_" + std::to_string(i)].push_back(i);
}
__attribute__((noinline)) void grow() {
    for (int i = 0; i < 5; i++) layers.all[(size_t)i]->weights.resize(60000);
}
int main() {
    load_model();
    load_words();
    grow();
    return words.empty();
}

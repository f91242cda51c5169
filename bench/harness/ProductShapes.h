// ProductShapes.h: the products of training steps that bench_products measures.
#ifndef CINCH_BENCH_HARNESS_PRODUCTSHAPES_H
#define CINCH_BENCH_HARNESS_PRODUCTSHAPES_H

#include <cstdint>

namespace cinch::bench {

struct Shape {
  const char *name;
  int64_t m, n, k;
  bool transposeA, transposeB; // A is stored k x m, B is stored n x k
  int64_t batch = 1;           // so many products, one behind the other in each operand
};

// Cubes; layers with the gradients of their input (dX) and of their weights (dW); thin, odd and batched ones.
constexpr Shape kShapes[] = {
    {"256^3", 256, 256, 256, false, false},
    {"512^3", 512, 512, 512, false, false},
    {"1024^3", 1024, 1024, 1024, false, false},
    {"2048^3", 2048, 2048, 2048, false, false},
    {"1000^3", 1000, 1000, 1000, false, false},
    {"1008x1152x1024", 1008, 1152, 1024, false, false},
    {"1024^3 TT", 1024, 1024, 1024, true, true},
    {"feed-forward", 4096, 3072, 768, false, false},
    {"feed-forward dX", 4096, 768, 3072, false, true},
    {"feed-forward dW", 768, 3072, 4096, true, false},
    {"gpt2 qkv", 512, 2304, 768, false, false},
    {"gpt2 qkv dX", 512, 768, 2304, false, true},
    {"gpt2 qkv dW", 768, 2304, 512, true, false},
    {"gpt2 down", 512, 768, 3072, false, false},
    {"gpt2 down dW", 3072, 768, 512, true, false},
    {"gpt2 logits", 512, 50257, 768, false, true},
    {"gpt2 logits dX", 512, 768, 50257, false, false},
    {"gpt2 logits dW", 50257, 768, 512, true, false},
    {"byte gpt up", 4096, 1536, 384, false, false},
    {"byte gpt up dX", 4096, 384, 1536, false, true},
    {"byte gpt up dW", 384, 1536, 4096, true, false},
    {"byte gpt head", 4096, 256, 384, false, true},
    {"byte gpt head dW", 256, 384, 4096, true, false},
    {"mlp", 128, 1024, 784, false, false},
    {"mlp dX", 128, 1024, 1024, false, true},
    {"mlp dW", 784, 1024, 128, true, false},
    {"mlp of 256", 256, 512, 784, false, false},
    {"mlp of 256 dX", 256, 784, 512, false, true},
    {"mlp of 256 dW", 784, 512, 256, true, false},
    {"lstm", 64, 1024, 256, false, false},
    {"lstm dX", 64, 256, 1024, false, true},
    {"lstm dW", 256, 1024, 8192, true, false},
    {"64^3 NN", 64, 64, 64, false, false},
    {"64^3 NT", 64, 64, 64, false, true},
    {"64^3 TN", 64, 64, 64, true, false},
    {"64^3 TT", 64, 64, 64, true, true},
    {"classifier", 256, 10, 512, false, false},
    {"classifier dX", 256, 512, 10, false, true},
    {"classifier dW", 512, 10, 256, true, false},
    {"thin rows", 16, 4096, 1024, false, false},
    {"thin rows dX", 16, 1024, 4096, false, true},
    {"thin columns", 8192, 24, 512, false, false},
    {"thin k", 2048, 2048, 16, false, false},
    {"odd NN", 333, 777, 555, false, false},
    {"odd NT", 333, 777, 555, false, true},
    {"odd TN", 333, 777, 555, true, false},
    {"odd TT", 333, 777, 555, true, true},
    {"batched scores", 256, 256, 64, false, true, 96},
    {"batched values", 256, 64, 256, false, false, 96},
    {"batched dK", 256, 64, 256, true, false, 96},
    {"batched odd", 49, 49, 32, false, true, 128},
    {"experts", 200, 512, 128, false, false, 8},
};

} // namespace cinch::bench
#endif

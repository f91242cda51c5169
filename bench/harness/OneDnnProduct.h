// OneDnnProduct.h: a product by oneDNN.
#ifndef CINCH_BENCH_HARNESS_ONEDNNPRODUCT_H
#define CINCH_BENCH_HARNESS_ONEDNNPRODUCT_H

#include "bench/harness/ProductShapes.h"

#include <dnnl.hpp>
#include <unordered_map>

namespace cinch::bench {

// oneDNN: sgemm, or the batched primitive.
class OneDnnProduct {
public:
  OneDnnProduct(const Shape &shape, float *a, float *b, float *c) : shape(shape), a(a), b(b), c(c) {
    if (shape.batch == 1)
      return;
    using dims = dnnl::memory::dims;
    auto described = [&](int64_t rows, int64_t columns, bool transposed) {
      dims strides = transposed ? dims{rows * columns, 1, rows} : dims{rows * columns, columns, 1};
      return dnnl::memory::desc(dims{shape.batch, rows, columns}, dnnl::memory::data_type::f32, strides);
    };
    engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
    stream = dnnl::stream(engine);
    auto left = described(shape.m, shape.k, shape.transposeA), right = described(shape.k, shape.n, shape.transposeB);
    auto result = described(shape.m, shape.n, false);
    matmul = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(left, right, result), engine));
    operands = {{DNNL_ARG_SRC, dnnl::memory(left, engine, a)},
                {DNNL_ARG_WEIGHTS, dnnl::memory(right, engine, b)},
                {DNNL_ARG_DST, dnnl::memory(result, engine, c)}};
  }
  void operator()() {
    if (shape.batch > 1) {
      matmul.execute(stream, operands);
      return;
    }
    dnnl_sgemm(shape.transposeA ? 'T' : 'N', shape.transposeB ? 'T' : 'N', shape.m, shape.n, shape.k, 1.0f, a, shape.transposeA ? shape.m : shape.k, b,
               shape.transposeB ? shape.k : shape.n, 0.0f, c, shape.n);
  }

private:
  const Shape &shape;
  float *a, *b, *c;
  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::matmul matmul;
  std::unordered_map<int, dnnl::memory> operands;
};

} // namespace cinch::bench
#endif

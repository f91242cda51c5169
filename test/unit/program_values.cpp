// LINK: cinch_frontend
// The graphs that the checker makes compute what the text says: small programs are evaluated op by op in f64 from the
// definitions in Program.h, and compared with plain loops over the same inputs written down here.
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"

#include "test/unit/GraphValues.h"

#include "llvm/Support/raw_ostream.h"

using namespace cinch;

// ---- Cases --------------------------------------------------------------------------------------------------------
struct Run {
  Program program;
  Inputs inputs;
  std::vector<Array> values; // of the prediction graph
  const Array &field(const char *name) const {
    const Dataset &data = program.datasets[program.train.dataset];
    for (size_t i = 0; i < data.fields.size(); ++i)
      if (data.fields[i].name == name)
        return inputs.fields[i];
    std::abort();
  }
  const Array &parameter(const char *path) const {
    for (size_t i = 0; i < program.parameters.size(); ++i)
      if (program.parameters[i].path == path)
        return inputs.parameters[i];
    std::abort();
  }
  const Array &draw(Draw kind, size_t number = 0) const { // the n-th draw of this kind in the step
    for (const Op &op : program.step.ops)
      if (op.kind == OpKind::Random && Draw(op.integer(Key::Draw)) == kind && number-- == 0)
        return inputs.draws.at(uint64_t(op.integer(Key::Key)));
    std::abort();
  }
};

static int passed = 0, failed = 0;
static void outcome(const std::string &name, const std::string &fault) {
  ++(fault.empty() ? passed : failed);
  if (!fault.empty())
    llvm::outs() << "failed: " << name << ": " << fault << "\n";
}

static const char *const fields =
    "dim B = 3 batch, T = 4, D = 8, A = 2, V = 5, K = D / A\n"
    "data train = npz(\"d.npz\") -> (x: f32[B, T, D], z: f32[B, T, D], text: i32[B, T] below V, "
    "mask: i32[B, T] below 2, image: f32[B, 2, 4, 4])\n";
static const char *const settings = "  optimizer sgd(lr = 0.1)\n  steps 1\n}\n";

static std::optional<Run> prepare(const std::string &name, const std::string &text) {
  SourceList sources;
  int id = sources.add("case.cinch", text);
  Diagnostics diags(sources);
  ast::File prelude = parseFile(sources, 0, diags), file = parseFile(sources, id, diags);
  std::optional<Program> program;
  if (!diags.hasErrors())
    program = check(sources, prelude, file, {}, diags);
  if (!program) {
    outcome(name, "refused");
    diags.print(llvm::outs());
    return std::nullopt;
  }
  if (std::string fault = verifyProgram(*program); !fault.empty()) {
    outcome(name, fault);
    return std::nullopt;
  }
  Run result{std::move(*program), {}, {}};
  for (const Field &field : result.program.datasets[result.program.train.dataset].fields) {
    Array array(field.type.shape);
    for (double &x : array.data)
      x = field.hasBelow ? std::floor(result.inputs.uniform() * static_cast<double>(field.below))
                         : result.inputs.uniform() - 0.5;
    result.inputs.fields.push_back(array);
  }
  for (const Parameter &parameter : result.program.parameters) {
    Array array(parameter.type.shape);
    for (double &x : array.data)
      x = result.inputs.uniform() - 0.5;
    result.inputs.parameters.push_back(array);
  }
  return result;
}

static std::string difference(const Array &got, const Array &want) {
  if (got.shape != want.shape)
    return "another shape";
  for (size_t i = 0; i < got.data.size(); ++i)
    if (!(std::fabs(got.data[i] - want.data[i]) <= 1e-12 * (1 + std::fabs(want.data[i]))))
      return "element " + std::to_string(i) + " is " + std::to_string(got.data[i]) + ", expected " +
             std::to_string(want.data[i]);
  return "";
}

// What a model computes that ends in `r`, in a prediction. `one` makes the loss depend on a parameter.
static std::string modelOf(const std::string &layers, const std::string &type, const std::string &body) {
  return std::string(fields) + layers +
         "model m(x: f32[B, T, D], z: f32[B, T, D], text: i32[B, T] below V, image: f32[B, 2, 4, 4]) -> " + type +
         " {\n  param one: f32[] ~ ones\n" + body + "  return r * one\n}\n";
}

static void predicts(const std::string &name, const std::string &layers, const std::string &type,
                     const std::string &body, const std::function<Array(const Run &)> &expected) {
  std::optional<Run> run =
      prepare(name, modelOf(layers, type, body) +
                        "train m on train seed 1 {\n  out = m(x, z, text, image)\n  loss = sum[..] out\n" + settings);
  if (!run)
    return;
  Array want = expected(*run);
  for (double &x : want.data)
    x *= run->parameter("one").data[0];
  outcome(name, difference(cinch::run(run->program.prediction, run->inputs)[run->program.results[0].op], want));
}

// What a model computes in a training step, where it may draw: the weighted sum of its result is compared.
static void trains(const std::string &name, const std::string &type, const std::string &body, const std::string &weight,
                   const std::function<Array(const Run &)> &expected, const char *weightField) {
  std::optional<Run> run =
      prepare(name, modelOf("", type, body) + "train m on train seed 1 {\n  out = m(x, z, text, image)\n" +
                        "  loss = sum[..] out * " + weight + "\n" + settings);
  if (!run)
    return;
  Array got = cinch::run(run->program.step, run->inputs)[run->program.loss], want;
  Array parts = expected(*run);
  for (size_t i = 0; i < parts.data.size(); ++i)
    want.data[0] += parts.data[i] * run->field(weightField).data[i] * run->parameter("one").data[0];
  outcome(name, difference(got, want));
}

// A metric over an evaluation whose last row is padding.
static void measures(const std::string &name, const std::string &train,
                     const std::function<Array(const Run &)> &expected) {
  std::optional<Run> run = prepare(name, modelOf("", "f32[B, T, D]", "  r = x\n") + "train m on train seed 1 {\n" +
                                             "  out = m(x, z, text, image)\n  loss = sum[..] out\n" + train + settings);
  if (!run)
    return;
  run->inputs.valid = 2;
  run->inputs.parameters[0].data[0] = 1;
  outcome(name,
          difference(cinch::run(run->program.evaluation, run->inputs)[run->program.metrics.back().op], expected(*run)));
}

static Array like(const std::vector<int64_t> &shape, const std::function<double(const Index &)> &value) {
  Array array(shape);
  forAll(shape, [&](const Index &at) { array[at] = value(at); });
  return array;
}

static constexpr int64_t B = 3, T = 4, D = 8, A = 2, V = 5, K = 4;

static Array linearOf(const Run &run, const std::string &path, const Array &x) {
  const Array &w = run.parameter((path + ".weight").c_str()), &b = run.parameter((path + ".bias").c_str());
  std::vector<int64_t> shape = x.shape;
  shape.back() = w.shape[0];
  return like(shape, [&](const Index &at) {
    double sum = b.data[at.back()];
    for (int64_t i = 0; i < w.shape[1]; ++i) {
      Index from = at;
      from.back() = i;
      sum += x[from] * w[{at.back(), i}];
    }
    return sum;
  });
}

static void products() {
  predicts("matrix product with a transposed weight", "", "f32[B, T, V]",
           "  param w: f32[V, D] ~ zeros\n  r = x @ w'\n", [](const Run &run) {
             return like({B, T, V}, [&](const Index &at) {
               double sum = 0;
               for (int64_t d = 0; d < D; ++d)
                 sum += run.field("x")[{at[0], at[1], d}] * run.parameter("w")[{at[2], d}];
               return sum;
             });
           });
  predicts("batched product of transposed operands", "", "f32[B, D, D]", "  r = x' @ (z' )'\n", [](const Run &run) {
    return like({B, D, D}, [&](const Index &at) {
      double sum = 0;
      for (int64_t t = 0; t < T; ++t)
        sum += run.field("x")[{at[0], t, at[1]}] * run.field("z")[{at[0], t, at[2]}];
      return sum;
    });
  });
  predicts("contraction with a permuted result", "", "f32[3, B, A, T, K]",
           "  param w: f32[3, D, A, K] ~ zeros\n  r[j, b, a, t, k] = sum[d] x[b, t, d] * w[j, d, a, k]\n",
           [](const Run &run) {
             return like({B, 3, A, T, K}, [&](const Index &at) { // results of `predict` have the batch axis first
               double sum = 0;
               for (int64_t d = 0; d < D; ++d)
                 sum += run.field("x")[{at[0], at[3], d}] * run.parameter("w")[{at[1], d, at[2], at[4]}];
               return sum;
             });
           });
  predicts("two indices summed, one of them in one operand only", "", "f32[B, V]",
           "  param w: f32[D, V] ~ zeros\n  r[b, v] = sum[t, d] x[b, t, d] * w[d, v]\n", [](const Run &run) {
             return like({B, V}, [&](const Index &at) {
               double sum = 0;
               for (int64_t t = 0; t < T; ++t)
                 for (int64_t d = 0; d < D; ++d)
                   sum += run.field("x")[{at[0], t, d}] * run.parameter("w")[{d, at[1]}];
               return sum;
             });
           });
  predicts("mean of products, and a sum that is no contraction", "", "f32[B, V]",
           "  param w: f32[D, V] ~ zeros\n  u[b, t] = sum[d] x[b, t, d] * z[b, t, d]\n  p[b, t, v] = mean[d] x[b, t, "
           "d] * w[d, v]\n"
           "  r[b, v] = max[t] p[b, t, v] * u[b, t]\n",
           [](const Run &run) {
             return like({B, V}, [&](const Index &at) {
               double best = -1e9;
               for (int64_t t = 0; t < T; ++t) {
                 double u = 0, p = 0;
                 for (int64_t d = 0; d < D; ++d) {
                   u += run.field("x")[{at[0], t, d}] * run.field("z")[{at[0], t, d}];
                   p += run.field("x")[{at[0], t, d}] * run.parameter("w")[{d, at[1]}] / D;
                 }
                 best = std::max(best, p * u);
               }
               return best;
             });
           });
}

static void indexing() {
  predicts("embedding", "", "f32[B, T, D]", "  param e: f32[V, D] ~ zeros\n  r = e[text]\n", [](const Run &run) {
    return like({B, T, D}, [&](const Index &at) {
      return run.parameter("e")[{static_cast<int64_t>(run.field("text")[{at[0], at[1]}]), at[2]}];
    });
  });
  predicts("gather by two index tensors in one example", "", "f32[B, T]",
           "  i = text\n  r[b, t] = x[b, 3, i[b, t]] + image[b, 1, max(min(i[b, t], 2), 2), 0]\n", [](const Run &run) {
             return like({B, T}, [&](const Index &at) {
               return run.field("x")[{at[0], 3, static_cast<int64_t>(run.field("text")[at])}] +
                      run.field("image")[{at[0], 1, 2, 0}];
             });
           });
  predicts("slots", "", "f32[B, 2, 3]", "  r = x[.., 1:3, D - 4:7] + z[:, 2:, 0:3] * 0 + image[.., 1, 1:3, :3]\n",
           [](const Run &run) {
             return like({B, 2, 3}, [&](const Index &at) {
               return run.field("x")[{at[0], at[1] + 1, at[2] + 4}] + run.field("image")[{at[0], 1, at[1] + 1, at[2]}];
             });
           });
  predicts("reshape, concat, pad, reverse", "", "f32[B, T + 3, 2 * D]",
           "  h = reshape[.., A, K](x)\n  s[b, t, a, k] = h[b, t, a, k] * 2\n  u = reshape[B, T, D](s)\n"
           "  r = pad(concat(u, reverse(z, axis = T), axis = -1), 1, 2, axis = 1, value = 7)\n",
           [](const Run &run) {
             return like({B, T + 3, 2 * D}, [&](const Index &at) {
               int64_t t = at[1] - 1;
               if (t < 0 || t >= T)
                 return 7.0;
               return at[2] < D ? 2 * run.field("x")[{at[0], t, at[2]}] : run.field("z")[{at[0], T - 1 - t, at[2] - D}];
             });
           });
  predicts("upsample and expand", "", "f32[B, 2, 8, 8]", "  r = upsample[2](image)\n", [](const Run &run) {
    return like({B, 2, 8, 8}, [&](const Index &at) {
      return run.field("image")[{at[0], at[1], at[2] / 2, at[3] / 2}];
    });
  });
}

static void layers() {
  predicts("layer_norm and rms_norm", "", "f32[B, T, D]", "  use n = layer_norm, q = rms_norm\n  r = n(x) + q(z)\n",
           [](const Run &run) {
             return like({B, T, D}, [&](const Index &at) {
               double mean = 0, var = 0, square = 0;
               for (int64_t d = 0; d < D; ++d) {
                 mean += run.field("x")[{at[0], at[1], d}] / D;
                 square += std::pow(run.field("z")[{at[0], at[1], d}], 2) / D;
               }
               for (int64_t d = 0; d < D; ++d)
                 var += std::pow(run.field("x")[{at[0], at[1], d}] - mean, 2) / D;
               return (run.field("x")[at] - mean) / std::sqrt(var + 1e-5) * run.parameter("n.weight").data[at[2]] +
                      run.parameter("n.bias").data[at[2]] +
                      run.field("z")[at] / std::sqrt(square + 1e-6) * run.parameter("q.weight").data[at[2]];
             });
           });
  predicts(
      "group_norm", "", "f32[B, 2, 4, 4]",
      "  h = reshape[B, 4, 4, 2](image)\n  use n = group_norm[2]\n  r = reshape[B, 2, 4, 4](n(h))\n",
      [](const Run &run) {
        Array h({B, 4, 4, 2});
        h.data = run.field("image").data;
        Array out = like(h.shape, [&](const Index &at) {
          double mean = 0, var = 0;
          int64_t first = at[1] / 2 * 2;
          for (int pass = 0; pass < 2; ++pass)
            for (int64_t c = first; c < first + 2; ++c)
              for (int64_t i = 0; i < 4; ++i)
                for (int64_t j = 0; j < 2; ++j)
                  (pass ? var : mean) += pass ? std::pow(h[{at[0], c, i, j}] - mean, 2) / 16 : h[{at[0], c, i, j}] / 16;
          return (h[at] - mean) / std::sqrt(var + 1e-5) * run.parameter("n.weight").data[at[1]] +
                 run.parameter("n.bias").data[at[1]];
        });
        out.shape = {B, 2, 4, 4};
        return out;
      });
  predicts("rope", "", "f32[B, T, D]", "  r = rope(x, base = 100)\n", [](const Run &run) {
    return like({B, T, D}, [&](const Index &at) {
      int64_t half = at[2] % (D / 2);
      double angle = static_cast<double>(at[1]) * std::pow(100, -2.0 * static_cast<double>(half) / D);
      double a = run.field("x")[{at[0], at[1], half}], b = run.field("x")[{at[0], at[1], half + D / 2}];
      return at[2] < D / 2 ? a * std::cos(angle) - b * std::sin(angle) : b * std::cos(angle) + a * std::sin(angle);
    });
  });
  predicts("multi_head_attention", "", "f32[B, T, D]",
           "  use n = multi_head_attention[A](causal = true, rate = 0.5)\n  c = text\n  t0 = range[T]\n  k[b, t] = "
           "c[b, t] > 0 or t0[t] == 0\n  r = n(x, k)\n",
           [](const Run &run) {
             Array qkv = linearOf(run, "n.qkv", run.field("x"));
             Array o = like({B, T, D}, [&](const Index &at) {
               int64_t head = at[2] / K, e = at[2] % K;
               double sum = 0, value = 0;
               for (int64_t s = 0; s <= at[1]; ++s) {
                 if (s > 0 && run.field("text")[{at[0], s}] <= 0)
                   continue;
                 double dot = 0;
                 for (int64_t k = 0; k < K; ++k)
                   dot += qkv[{at[0], at[1], head * K + k}] * qkv[{at[0], s, D + head * K + k}] /
                          std::sqrt(static_cast<double>(K));
                 sum += std::exp(dot);
                 value += std::exp(dot) * qkv[{at[0], s, 2 * D + head * K + e}];
               }
               return value / sum;
             });
             return linearOf(run, "n.out", o);
           });
  predicts("repeat with a number for each block", "layer add(x: f32[..], by) -> f32[..] { return 2 * x + by }\n",
           "f32[B, T, D]", "  use s = repeat 3 as i add(i ^ 2 + 1)\n  r = s(x)\n", [](const Run &run) {
             return like({B, T, D}, [&](const Index &at) { return 2 * (2 * (2 * run.field("x")[at] + 1) + 2) + 5; });
           });
  predicts("swiglu, huber, kl, where", "", "f32[B, T]",
           "  s = swiglu(x)\n  p = log_softmax(x)\n  q = log_softmax(z)\n  h[b, t] = sum[k] s[b, t, k]\n"
           "  r = h + kl(p, q) + mean[D where x > z] huber(x, z, delta = 0.3)\n",
           [](const Run &run) {
             return like({B, T}, [&](const Index &at) {
               auto x = [&](int64_t d) { return run.field("x")[{at[0], at[1], d}]; };
               auto z = [&](int64_t d) { return run.field("z")[{at[0], at[1], d}]; };
               double sx = 0, sz = 0, result = 0, hubers = 0, count = 0;
               for (int64_t d = 0; d < D; ++d) {
                 sx += std::exp(x(d));
                 sz += std::exp(z(d));
               }
               for (int64_t d = 0; d < D; ++d) {
                 if (d < D / 2)
                   result += x(d) / (1 + std::exp(-x(d))) * x(d + D / 2);
                 result += std::exp(x(d)) / sx * ((x(d) - std::log(sx)) - (z(d) - std::log(sz)));
                 double e = std::fabs(x(d) - z(d));
                 if (x(d) > z(d)) {
                   hubers += e < 0.3 ? 0.5 * e * e : 0.3 * (e - 0.15);
                   ++count;
                 }
               }
               return result + (count > 0 ? hubers / count : 0);
             });
           });
}

static void draws() {
  trains(
      "dropout", "f32[B, T, D]", "  r = dropout(x, 0.25)\n", "z",
      [](const Run &run) {
        return like({B, T, D}, [&](const Index &at) {
          return run.draw(Draw::Bool)[at] != 0 ? run.field("x")[at] / 0.75 : 0;
        });
      },
      "z");
  trains(
      "drop_path", "f32[B, T, D]", "  r = drop_path(x, 0.5)\n", "z",
      [](const Run &run) {
        return like({B, T, D}, [&](const Index &at) {
          return run.draw(Draw::Bool)[{at[0]}] != 0 ? run.field("x")[at] * 2 : 0;
        });
      },
      "z");
  trains(
      "random_flip", "f32[B, 2, 4, 4]", "  r = random_flip(image)\n", "image",
      [](const Run &run) {
        return like({B, 2, 4, 4}, [&](const Index &at) {
          bool flip = run.draw(Draw::Bool)[{at[0]}] != 0;
          return run.field("image")[{at[0], at[1], at[2], flip ? 3 - at[3] : at[3]}];
        });
      },
      "image");
  trains(
      "random_flip_vertical", "f32[B, 2, 4, 4]", "  r = random_flip_vertical(image)\n", "image",
      [](const Run &run) {
        return like({B, 2, 4, 4}, [&](const Index &at) {
          bool flip = run.draw(Draw::Bool)[{at[0]}] != 0;
          return run.field("image")[{at[0], at[1], flip ? 3 - at[2] : at[2], at[3]}];
        });
      },
      "image");
  trains(
      "gaussian_noise", "f32[B, T, D]", "  r = gaussian_noise(x, 0.5)\n", "z",
      [](const Run &run) {
        return like({B, T, D}, [&](const Index &at) { return run.field("x")[at] + 0.5 * run.draw(Draw::Normal)[at]; });
      },
      "z");
  trains(
      "random_erase", "f32[B, 2, 4, 4]", "  r = random_erase[2](image)\n", "image",
      [](const Run &run) {
        return like({B, 2, 4, 4}, [&](const Index &at) {
          double i = at[2] - run.draw(Draw::Int, 0)[{at[0]}], j = at[3] - run.draw(Draw::Int, 1)[{at[0]}];
          bool inside = run.draw(Draw::Bool)[{at[0]}] != 0 && i >= 0 && i < 2 && j >= 0 && j < 2;
          return inside ? 0 : run.field("image")[at];
        });
      },
      "image");
  trains(
      "random_crop", "f32[B, 2, 4, 4]", "  r = random_crop[1](image)\n", "image",
      [](const Run &run) {
        return like({B, 2, 4, 4}, [&](const Index &at) {
          int64_t i = at[2] + static_cast<int64_t>(run.draw(Draw::Int, 0)[{at[0]}]) - 1;
          int64_t j = at[3] + static_cast<int64_t>(run.draw(Draw::Int, 1)[{at[0]}]) - 1;
          return i < 0 || i > 3 || j < 0 || j > 3 ? 0 : run.field("image")[{at[0], at[1], i, j}];
        });
      },
      "image");
}

static void metrics() {
  auto scalar = [](double value) {
    Array array;
    array.data[0] = value;
    return array;
  };
  measures("mean over the valid rows", "  metric v = sqrt(mean[B, T, D] (x - z) ^ 2)\n", [&](const Run &run) {
    double sum = 0;
    for (int64_t i = 0; i < 2 * T * D; ++i)
      sum += std::pow(run.field("x").data[i] - run.field("z").data[i], 2);
    return scalar(std::sqrt(sum / (2 * T * D)));
  });
  measures("mean where", "  metric v = mean[B, T where mask == 1] sum[D] x\n", [&](const Run &run) {
    double sum = 0, count = 0;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t t = 0; t < T; ++t)
        if (run.field("mask")[{b, t}] == 1) {
          ++count;
          for (int64_t d = 0; d < D; ++d)
            sum += run.field("x")[{b, t, d}];
        }
    return scalar(count > 0 ? sum / count : 0);
  });
  measures("a part of the axes, by index", "  metric v = mean[B] x\n", [&](const Run &run) {
    return like({T, D}, [&](const Index &at) {
      return (run.field("x")[{0, at[0], at[1]}] + run.field("x")[{1, at[0], at[1]}]) / 2;
    });
  });
  measures("products over examples and positions, by index",
           "  c[i, j] = mean[b, k] x[b, k, i] * z[b, k, j]\n  metric v = c\n", [&](const Run &run) {
             return like({D, D}, [&](const Index &at) {
               double sum = 0;
               for (int64_t b = 0; b < 2; ++b)
                 for (int64_t t = 0; t < T; ++t)
                   sum += run.field("x")[{b, t, at[0]}] * run.field("z")[{b, t, at[1]}];
               return sum / (2 * T);
             });
           });
  measures("any and all",
           "  seen = any[B] (text == 4)\n  full = all[B] (mask == 1)\n  metric v = f32(seen) + 2 * f32(full)\n",
           [&](const Run &run) {
             return like({T}, [&](const Index &at) {
               bool seen = false, full = true;
               for (int64_t b = 0; b < 2; ++b) {
                 seen |= run.field("text")[{b, at[0]}] == 4;
                 full &= run.field("mask")[{b, at[0]}] == 1;
               }
               return seen + 2.0 * full;
             });
           });
  measures("a table of guesses", "  metric v = sum[B, T] confusion[2](mask, min(text, 1))\n", [&](const Run &run) {
    Array table({2, 2});
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t t = 0; t < T; ++t)
        table[{std::min<int64_t>(1, static_cast<int64_t>(run.field("text")[{b, t}])),
               static_cast<int64_t>(run.field("mask")[{b, t}])}] += 1;
    return table;
  });
  measures("the loss", "  metric v = loss / 2\n", [&](const Run &run) {
    double sum = 0;
    for (int64_t i = 0; i < 2 * T * D; ++i)
      sum += run.field("x").data[i];
    return scalar(sum / 2);
  });
}

int main() {
  products();
  indexing();
  layers();
  draws();
  metrics();
  llvm::outs() << passed << " passed, " << failed << " failed\n";
  return failed > 0;
}

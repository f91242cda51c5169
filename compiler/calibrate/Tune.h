// Tune.h: `cinch calibrate --tune FILE`: the products of a program, timed on this machine with other tiles and blocks than the built-in
// rules choose. What is quicker goes into the profile. No number of a training changes.
#ifndef CINCH_COMPILER_CALIBRATE_TUNE_H
#define CINCH_COMPILER_CALIBRATE_TUNE_H

#include "compiler/kernels/Tiling.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <string>
#include <vector>

namespace cinch::calibrate {

struct Product {
  kernels::ContractSpec spec;
  std::string text;  // for people: "product 768 x 3072, sums of 512"
  double flops = 0;  // of a call
  int calls = 0;     // kernels of the program that make it
};
// Those of a scheduled program, convolutions too, each shape once; first what has the most work in all.
std::vector<Product> productsOf(mlir::ModuleOp scheduled);

struct Tuned {
  double before = 0, after = 0; // seconds of a call by the built-in rules and by the best tiling found, taken in turns
  kernels::Tiling tiling;       // the best one
  bool tooLarge = false;        // its operands do not fit into this machine's memory: nothing was timed
  bool kept = false;            // it is so much quicker that it is worth an entry
};
// Times tilings of one product on so many threads for about `limit` seconds. None takes more scratch than the built-in one, so that a plan
// that fits a budget still does. False after an internal error, with the reason.
bool tuneProduct(const Product &, const std::string &cpu, int threads, double limit, Tuned &tuned, std::string &error);

} // namespace cinch::calibrate
#endif

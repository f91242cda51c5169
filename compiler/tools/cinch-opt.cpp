// cinch-opt: every pass and phase on textual IR, for tests and people.
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<cinch::nn::NNDialect, cinch::plan::PlanDialect, mlir::func::FuncDialect>();
  cinch::registerCinchPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Cinch optimizer driver\n", registry));
}

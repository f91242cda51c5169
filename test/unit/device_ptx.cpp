// LINK: cinch_target
// What the PTX of a kernel may not hold, and who may approximate.
#include "compiler/target/DeviceCode.h"
#include "test/unit/Expect.h"

using cinch::target::verifyPtx;

static std::string kernel(const std::string &code) { return ".visible .entry kernel_1(\n)\n{\n\t" + code + "\n}\n"; }

int main() {
  expect(verifyPtx(kernel("fma.rn.f32 \t%f1, %f2, %f3, %f4; // .approx in a remark"), false).empty(), "plain instructions");
  for (const char *code : {"ex2.approx.ftz.f32 \t%f1, %f2;", "rcp.approx.ftz.f32 \t%f1, %f2;"}) {
    expect(verifyPtx(kernel(code), true).empty(), std::string(code) + " in a program of bf16");
    expect(verifyPtx(kernel(code), false) == code, std::string(code) + " in a program of f32");
  }
  for (const char *code : {"ex2.approx.f32 %f1, %f2;", "sin.approx.f32 %f1, %f2;", "add.ftz.f32 %f1, %f2, %f3;", "div.full.f32 %f1, %f2, %f3;",
                           "min.u16 %rs1, %rs2, 3;"}) {
    expect(verifyPtx(kernel(code), false) == code, code);
    expect(verifyPtx(kernel(code), true) == code, std::string(code) + " in a program of bf16");
  }
  return tally();
}

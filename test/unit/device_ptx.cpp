// LINK: cinch_target
// What the PTX of a kernel may not hold, and who may approximate.
#include "compiler/target/DeviceCode.h"
#include "test/unit/Expect.h"

using cinch::target::verifyPtx;

static std::string kernel(const std::string &code) { return ".visible .entry kernel_1(\n)\n{\n\t" + code + "\n}\n"; }

int main() {
  const std::string product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 \t{%f1};", power = "ex2.approx.ftz.f32 \t%f1, %f2;";
  expect(verifyPtx(kernel("fma.rn.f32 \t%f1, %f2, %f3, %f4; // .approx in a remark")).empty(), "plain instructions");
  expect(verifyPtx(kernel(product + "\n\t" + power)).empty(), "a power of two beside products on tensor cores");
  expect(verifyPtx(kernel(power)) == power, "a power of two in a kernel of f32");
  expect(verifyPtx(kernel(product) + kernel(power)) == power, "products of another kernel");
  for (const char *code : {"ex2.approx.f32 %f1, %f2;", "sin.approx.f32 %f1, %f2;", "add.ftz.f32 %f1, %f2, %f3;", "div.full.f32 %f1, %f2, %f3;",
                           "min.u16 %rs1, %rs2, 3;"}) {
    expect(verifyPtx(kernel(code)) == code, code);
    expect(verifyPtx(kernel(product + "\n\t" + code)) == code, std::string(code) + " beside products");
  }
  return tally();
}

// LINK: cinch_target
// What the PTX of a kernel may not hold, and who may approximate and multiply in tf32.
#include "compiler/target/DeviceCode.h"
#include "test/unit/Expect.h"

using cinch::target::verifyPtx;

static std::string kernel(const std::string &code) { return ".visible .entry kernel_1(\n)\n{\n\t" + code + "\n}\n"; }

int main() {
  const std::vector<std::string> none, other = {"kernel_10"}, mine = {"kernel_10", "kernel_1"};
  expect(verifyPtx(kernel("fma.rn.f32 \t%f1, %f2, %f3, %f4; // .approx in a remark"), none).empty(), "plain instructions");
  for (const char *code : {"ex2.approx.ftz.f32 \t%f1, %f2;", "rcp.approx.ftz.f32 \t%f1, %f2;"}) {
    expect(verifyPtx(kernel(code), mine).empty(), std::string(code) + " in a kernel that may approximate");
    expect(verifyPtx(kernel(code), other) == code, std::string(code) + " in another one");
    expect(verifyPtx(kernel("ret;") + ".visible .entry kernel_2(\n)\n{\n\t" + code + "\n}\n", mine) == code, std::string(code) + " behind one");
  }
  for (const char *code : {"ex2.approx.f32 %f1, %f2;", "sin.approx.f32 %f1, %f2;", "add.ftz.f32 %f1, %f2, %f3;", "div.full.f32 %f1, %f2, %f3;",
                           "min.u16 %rs1, %rs2, 3;"}) {
    expect(verifyPtx(kernel(code), none) == code, code);
    expect(verifyPtx(kernel(code), mine) == code, std::string(code) + " in a kernel that may approximate");
  }
  for (const char *code : {"cvt.rna.tf32.f32 \t%r1, %f1;", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1};"}) {
    expect(verifyPtx(kernel(code), none, mine).empty(), std::string(code) + " in a product of tf32");
    expect(verifyPtx(kernel(code), mine, other) == code, std::string(code) + " in another kernel");
  }
  return tally();
}

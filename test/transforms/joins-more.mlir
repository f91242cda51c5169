// RUN: cinch-opt %s --form-kernels | FileCheck %s --check-prefix APART
// RUN: cinch-opt %s --form-kernels=joins-more | FileCheck %s

// What a row's numbers are computed from lies in a kernel that has the row: on a GPU the norm of a row is one kernel.
// APART-COUNT-4: plan.kernel
// CHECK-LABEL: func.func @train
// CHECK: %[[N:.*]]:2 = plan.kernel {{.*}}(%arg0)
// CHECK: nn.reduce sum
// CHECK: nn.sqrt
// CHECK: nn.div
// CHECK: plan.return
// CHECK: plan.kernel {{.*}} as product
func.func @train(%x: tensor<8x64xf32, #nn.batch<0>>, %w: tensor<64x4xf32> {nn.path = "w"}) -> (tensor<8x4xf32, #nn.batch<0>> {nn.name = "y"}, tensor<8xf32, #nn.batch<0>> {nn.name = "s"}) {
  %0 = nn.mul %x, %x : tensor<8x64xf32, #nn.batch<0>>
  %1 = nn.reduce sum %0 [1] : (tensor<8x64xf32, #nn.batch<0>>) -> tensor<8xf32, #nn.batch<0>>
  %2 = nn.sqrt %1 : tensor<8xf32, #nn.batch<0>>
  %3 = nn.broadcast %2 [0] : (tensor<8xf32, #nn.batch<0>>) -> tensor<8x64xf32, #nn.batch<0>>
  %4 = nn.div %x, %3 : tensor<8x64xf32, #nn.batch<0>>
  %5 = nn.contract %4 [0, 2], %w [2, 1] : (tensor<8x64xf32, #nn.batch<0>>, tensor<64x4xf32>) -> tensor<8x4xf32, #nn.batch<0>>
  return %5, %2 : tensor<8x4xf32, #nn.batch<0>>, tensor<8xf32, #nn.batch<0>>
}

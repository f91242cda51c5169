// RUN: cinch-opt %s --hoist-roundings | FileCheck %s

// Queries and keys of one product: all of it is rounded, once, and the parts are taken from that.
// CHECK-LABEL: func.func @parts
// CHECK: %[[X:.*]] = nn.add %arg0, %arg0
// CHECK: %[[R:.*]] = nn.cast %[[X]] : {{.*}} -> tensor<8x6xbf16, #nn.batch<0>>
// CHECK: %[[S:.*]] = nn.slice %[[R]] axis 1 from 0 to 3 : {{.*}} -> tensor<8x3xbf16, #nn.batch<0>>
// CHECK: %[[T:.*]] = nn.slice %[[R]] axis 1 from 3 to 6 : {{.*}} -> tensor<8x3xbf16, #nn.batch<0>>
// CHECK: %[[U:.*]] = nn.transpose %[[T]] [1, 0] : {{.*}} -> tensor<3x8xbf16, #nn.batch<1>>
// CHECK: return %[[S]], %[[U]]
func.func @parts(%a: tensor<8x6xf32, #nn.batch<0>>) -> (tensor<8x3xbf16, #nn.batch<0>>, tensor<3x8xbf16, #nn.batch<1>>) {
  %x = nn.add %a, %a : tensor<8x6xf32, #nn.batch<0>>
  %0 = nn.slice %x axis 1 from 0 to 3 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  %1 = nn.cast %0 : (tensor<8x3xf32, #nn.batch<0>>) -> tensor<8x3xbf16, #nn.batch<0>>
  %2 = nn.slice %x axis 1 from 3 to 6 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  %3 = nn.transpose %2 [1, 0] : (tensor<8x3xf32, #nn.batch<0>>) -> tensor<3x8xf32, #nn.batch<1>>
  %4 = nn.cast %3 : (tensor<3x8xf32, #nn.batch<1>>) -> tensor<3x8xbf16, #nn.batch<1>>
  return %1, %4 : tensor<8x3xbf16, #nn.batch<0>>, tensor<3x8xbf16, #nn.batch<1>>
}

// Something reads a part as f32.
// CHECK-LABEL: func.func @read
// CHECK: nn.slice %{{.*}} -> tensor<8x3xf32, #nn.batch<0>>
// CHECK: nn.cast
func.func @read(%a: tensor<8x6xf32, #nn.batch<0>>) -> (tensor<8x3xbf16, #nn.batch<0>>, tensor<8x3xbf16, #nn.batch<0>>, tensor<8x3xf32, #nn.batch<0>>) {
  %x = nn.add %a, %a : tensor<8x6xf32, #nn.batch<0>>
  %0 = nn.slice %x axis 1 from 0 to 3 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  %1 = nn.cast %0 : (tensor<8x3xf32, #nn.batch<0>>) -> tensor<8x3xbf16, #nn.batch<0>>
  %2 = nn.slice %x axis 1 from 3 to 6 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  %3 = nn.cast %2 : (tensor<8x3xf32, #nn.batch<0>>) -> tensor<8x3xbf16, #nn.batch<0>>
  return %1, %3, %2 : tensor<8x3xbf16, #nn.batch<0>>, tensor<8x3xbf16, #nn.batch<0>>, tensor<8x3xf32, #nn.batch<0>>
}

// A part that nobody reads would be computed, too; and what is to be kept by the user's word stays as it is.
// CHECK-LABEL: func.func @some
// CHECK: nn.slice %{{.*}} -> tensor<8x2xf32, #nn.batch<0>>
// CHECK: nn.cast
// CHECK-LABEL: func.func @kept
// CHECK: nn.slice %{{.*}} -> tensor<8x3xf32, #nn.batch<0>>
// CHECK: nn.cast %{{.*}} {nn.keep}
func.func @some(%a: tensor<8x6xf32, #nn.batch<0>>) -> (tensor<8x2xbf16, #nn.batch<0>>, tensor<8x3xbf16, #nn.batch<0>>) {
  %x = nn.add %a, %a : tensor<8x6xf32, #nn.batch<0>>
  %0 = nn.slice %x axis 1 from 0 to 2 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x2xf32, #nn.batch<0>>
  %1 = nn.cast %0 : (tensor<8x2xf32, #nn.batch<0>>) -> tensor<8x2xbf16, #nn.batch<0>>
  %2 = nn.slice %x axis 1 from 3 to 6 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  %3 = nn.cast %2 : (tensor<8x3xf32, #nn.batch<0>>) -> tensor<8x3xbf16, #nn.batch<0>>
  return %1, %3 : tensor<8x2xbf16, #nn.batch<0>>, tensor<8x3xbf16, #nn.batch<0>>
}
func.func @kept(%a: tensor<8x6xf32, #nn.batch<0>>) -> (tensor<8x3xbf16, #nn.batch<0>>, tensor<8x3xbf16, #nn.batch<0>>) {
  %x = nn.add %a, %a : tensor<8x6xf32, #nn.batch<0>>
  %0 = nn.slice %x axis 1 from 0 to 3 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  %1 = nn.cast %0 {nn.keep} : (tensor<8x3xf32, #nn.batch<0>>) -> tensor<8x3xbf16, #nn.batch<0>>
  %2 = nn.slice %x axis 1 from 3 to 6 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  %3 = nn.cast %2 : (tensor<8x3xf32, #nn.batch<0>>) -> tensor<8x3xbf16, #nn.batch<0>>
  return %1, %3 : tensor<8x3xbf16, #nn.batch<0>>, tensor<8x3xbf16, #nn.batch<0>>
}

// Parts of bf16 that are put together as f32 are put together as bf16. (What is widened and rounded again is dropped where ops are decomposed.)
// CHECK-LABEL: func.func @together
// CHECK: %[[C:.*]] = nn.concat %arg0, %arg1 axis 1 : {{.*}} -> tensor<8x6xbf16, #nn.batch<0>>
// CHECK: %[[T:.*]] = nn.transpose %[[C]] [1, 0] : {{.*}} -> tensor<6x8xbf16, #nn.batch<1>>
// CHECK: %[[W:.*]] = nn.cast %[[T]] : {{.*}} -> tensor<6x8xf32, #nn.batch<1>>
// CHECK: return %[[W]]
func.func @together(%a: tensor<8x3xbf16, #nn.batch<0>>, %b: tensor<8x3xbf16, #nn.batch<0>>) -> tensor<6x8xf32, #nn.batch<1>> {
  %0 = nn.cast %a : (tensor<8x3xbf16, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  %1 = nn.cast %b : (tensor<8x3xbf16, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  %2 = nn.concat %0, %1 axis 1 : (tensor<8x3xf32, #nn.batch<0>>, tensor<8x3xf32, #nn.batch<0>>) -> tensor<8x6xf32, #nn.batch<0>>
  %3 = nn.transpose %2 [1, 0] : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<6x8xf32, #nn.batch<1>>
  return %3 : tensor<6x8xf32, #nn.batch<1>>
}

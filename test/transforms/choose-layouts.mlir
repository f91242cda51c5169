// RUN: cinch-opt %s --choose-layouts | FileCheck %s

// Between two convolutions nothing is transposed: bias, reductions over rows and columns and what is added to the image follow it.
// CHECK-LABEL: func.func @block
// CHECK: %[[Y:.*]] = nn.conv output
// CHECK-NEXT: %[[M:.*]] = nn.reduce sum %[[Y]] [1, 2]
// CHECK-NEXT: %[[SPREAD:.*]] = nn.broadcast %[[M]] [0, 3]
// CHECK-NEXT: %[[CENTRED:.*]] = nn.sub %[[Y]], %[[SPREAD]] : tensor<2x4x5x3xf32
// CHECK-NEXT: %[[BIAS:.*]] = nn.broadcast %arg2 [3]
// CHECK-NEXT: %[[SUM:.*]] = nn.add %[[CENTRED]], %[[BIAS]]
// CHECK-NEXT: %[[Z:.*]] = nn.conv output %[[SUM]], %arg1
// CHECK-NEXT: nn.transpose %[[Z]] [0, 3, 1, 2]
// CHECK-NEXT: return
func.func @block(%x: tensor<2x4x5x3xf32, #nn.batch<0>>, %w: tensor<1x1x3x3xf32>, %b: tensor<3xf32>) -> tensor<2x3x4x5xf32, #nn.batch<0>> {
  %0 = nn.conv output %x, %w stride [1, 1] pad [0, 0] dilate [1, 1] : (tensor<2x4x5x3xf32, #nn.batch<0>>, tensor<1x1x3x3xf32>) -> tensor<2x4x5x3xf32, #nn.batch<0>>
  %1 = nn.transpose %0 [0, 3, 1, 2] : (tensor<2x4x5x3xf32, #nn.batch<0>>) -> tensor<2x3x4x5xf32, #nn.batch<0>>
  %2 = nn.reduce sum %1 [2, 3] : (tensor<2x3x4x5xf32, #nn.batch<0>>) -> tensor<2x3xf32, #nn.batch<0>>
  %3 = nn.broadcast %2 [0, 1] : (tensor<2x3xf32, #nn.batch<0>>) -> tensor<2x3x4x5xf32, #nn.batch<0>>
  %4 = nn.sub %1, %3 : tensor<2x3x4x5xf32, #nn.batch<0>>
  %5 = nn.broadcast %b [1] : (tensor<3xf32>) -> tensor<2x3x4x5xf32, #nn.batch<0>>
  %6 = nn.add %4, %5 : tensor<2x3x4x5xf32, #nn.batch<0>>
  %7 = nn.transpose %6 [0, 2, 3, 1] : (tensor<2x3x4x5xf32, #nn.batch<0>>) -> tensor<2x4x5x3xf32, #nn.batch<0>>
  %8 = nn.conv output %7, %w stride [1, 1] pad [0, 0] dilate [1, 1] : (tensor<2x4x5x3xf32, #nn.batch<0>>, tensor<1x1x3x3xf32>) -> tensor<2x4x5x3xf32, #nn.batch<0>>
  %9 = nn.transpose %8 [0, 3, 1, 2] : (tensor<2x4x5x3xf32, #nn.batch<0>>) -> tensor<2x3x4x5xf32, #nn.batch<0>>
  return %9 : tensor<2x3x4x5xf32, #nn.batch<0>>
}

// Channels fall into groups where they stand; a reshape that joins channels and rows asks for the transpose.
// CHECK-LABEL: func.func @groups
// CHECK: %[[P:.*]] = nn.sum_pool
// CHECK-NEXT: %[[T:.*]] = nn.transpose %[[P]] [0, 3, 1, 2]
// CHECK-NEXT: %[[G:.*]] = nn.reshape %[[P]] : (tensor<2x4x4x6xf32, #nn.batch<0>>) -> tensor<2x4x4x2x3xf32, #nn.batch<0>>
// CHECK-NEXT: %[[S:.*]] = nn.reduce sum %[[G]] [1, 2, 4]
// CHECK-NEXT: %[[F:.*]] = nn.reshape %[[T]]
// CHECK-NEXT: return %[[S]], %[[F]]
func.func @groups(%x: tensor<2x5x5x6xf32, #nn.batch<0>>) -> (tensor<2x2xf32, #nn.batch<0>>, tensor<2x96xf32, #nn.batch<0>>) {
  %0 = nn.sum_pool %x window [2, 2] stride [1, 1] pad [0, 0] : (tensor<2x5x5x6xf32, #nn.batch<0>>) -> tensor<2x4x4x6xf32, #nn.batch<0>>
  %1 = nn.transpose %0 [0, 3, 1, 2] : (tensor<2x4x4x6xf32, #nn.batch<0>>) -> tensor<2x6x4x4xf32, #nn.batch<0>>
  %2 = nn.reshape %1 : (tensor<2x6x4x4xf32, #nn.batch<0>>) -> tensor<2x2x3x4x4xf32, #nn.batch<0>>
  %3 = nn.reduce sum %2 [2, 3, 4] : (tensor<2x2x3x4x4xf32, #nn.batch<0>>) -> tensor<2x2xf32, #nn.batch<0>>
  %4 = nn.reshape %1 : (tensor<2x6x4x4xf32, #nn.batch<0>>) -> tensor<2x96xf32, #nn.batch<0>>
  return %3, %4 : tensor<2x2xf32, #nn.batch<0>>, tensor<2x96xf32, #nn.batch<0>>
}

// Axes that are new stay behind those that they follow, slices and padding move along.
// CHECK-LABEL: func.func @along
// CHECK: %[[P:.*]] = nn.sum_pool
// CHECK-NEXT: %[[B:.*]] = nn.broadcast %[[P]] [0, 1, 3, 4] : (tensor<2x4x4x6xf32, #nn.batch<0>>) -> tensor<2x4x7x4x6xf32, #nn.batch<0>>
// CHECK-NEXT: nn.transpose %[[B]] [0, 4, 1, 2, 3]
// CHECK-NEXT: %[[S:.*]] = nn.slice %[[P]] axis 3 from 0 to 3
// CHECK-NEXT: %[[D:.*]] = nn.pad %[[S]] axis 2 before 1 after 0
// CHECK-NEXT: nn.transpose %[[D]] [0, 3, 1, 2]
func.func @along(%x: tensor<2x5x5x6xf32, #nn.batch<0>>) -> (tensor<2x6x4x7x4xf32, #nn.batch<0>>, tensor<2x3x4x5xf32, #nn.batch<0>>) {
  %0 = nn.sum_pool %x window [2, 2] stride [1, 1] pad [0, 0] : (tensor<2x5x5x6xf32, #nn.batch<0>>) -> tensor<2x4x4x6xf32, #nn.batch<0>>
  %1 = nn.transpose %0 [0, 3, 1, 2] : (tensor<2x4x4x6xf32, #nn.batch<0>>) -> tensor<2x6x4x4xf32, #nn.batch<0>>
  %2 = nn.broadcast %1 [0, 1, 2, 4] : (tensor<2x6x4x4xf32, #nn.batch<0>>) -> tensor<2x6x4x7x4xf32, #nn.batch<0>>
  %3 = nn.slice %1 axis 1 from 0 to 3 : (tensor<2x6x4x4xf32, #nn.batch<0>>) -> tensor<2x3x4x4xf32, #nn.batch<0>>
  %4 = nn.pad %3 axis 3 before 1 after 0 : (tensor<2x3x4x4xf32, #nn.batch<0>>) -> tensor<2x3x4x5xf32, #nn.batch<0>>
  return %2, %4 : tensor<2x6x4x7x4xf32, #nn.batch<0>>, tensor<2x3x4x5xf32, #nn.batch<0>>
}

// What has one axis is an image of one column: it goes on without that column, and without a transpose.
// CHECK-LABEL: func.func @line
// CHECK: %[[Y:.*]] = nn.conv output
// CHECK-NEXT: %[[L:.*]] = nn.reshape %[[Y]] : (tensor<2x9x1x3xf32, #nn.batch<0>>) -> tensor<2x9x3xf32, #nn.batch<0>>
// CHECK-NEXT: %[[E:.*]] = nn.exp %[[L]] : tensor<2x9x3xf32, #nn.batch<0>>
// CHECK-NEXT: %[[C:.*]] = nn.reshape %[[E]] : (tensor<2x9x3xf32, #nn.batch<0>>) -> tensor<2x9x1x3xf32, #nn.batch<0>>
// CHECK-NEXT: nn.conv output %[[C]], %arg1
func.func @line(%x: tensor<2x9x1x3xf32, #nn.batch<0>>, %w: tensor<3x1x3x3xf32>) -> tensor<2x9x1x3xf32, #nn.batch<0>> {
  %0 = nn.conv output %x, %w stride [1, 1] pad [1, 0] dilate [1, 1] : (tensor<2x9x1x3xf32, #nn.batch<0>>, tensor<3x1x3x3xf32>) -> tensor<2x9x1x3xf32, #nn.batch<0>>
  %1 = nn.reshape %0 : (tensor<2x9x1x3xf32, #nn.batch<0>>) -> tensor<2x9x3xf32, #nn.batch<0>>
  %2 = nn.transpose %1 [0, 2, 1] : (tensor<2x9x3xf32, #nn.batch<0>>) -> tensor<2x3x9xf32, #nn.batch<0>>
  %3 = nn.exp %2 : tensor<2x3x9xf32, #nn.batch<0>>
  %4 = nn.transpose %3 [0, 2, 1] : (tensor<2x3x9xf32, #nn.batch<0>>) -> tensor<2x9x3xf32, #nn.batch<0>>
  %5 = nn.reshape %4 : (tensor<2x9x3xf32, #nn.batch<0>>) -> tensor<2x9x1x3xf32, #nn.batch<0>>
  %6 = nn.conv output %5, %w stride [1, 1] pad [1, 0] dilate [1, 1] : (tensor<2x9x1x3xf32, #nn.batch<0>>, tensor<3x1x3x3xf32>) -> tensor<2x9x1x3xf32, #nn.batch<0>>
  return %6 : tensor<2x9x1x3xf32, #nn.batch<0>>
}

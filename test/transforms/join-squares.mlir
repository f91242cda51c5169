// RUN: cinch-opt %s --join-squares | FileCheck %s

// Whole chunks of all gradients are rows of one concatenation, those of as many chunks one behind the other; the rests of one length, too. The
// sum of a gradient's chunks stays one chain, its rest comes last.
// CHECK-LABEL: func.func @norm
// CHECK-SAME: %[[A:.*]]: tensor<64x128xf32>, %[[B:.*]]: tensor<4106xf32>, %[[C:.*]]: tensor<8192xf32>, %[[D:.*]]: tensor<2x5xf32>
// CHECK: %[[B1:.*]] = nn.slice %[[B]] axis 0 from 0 to 4096
// CHECK: %[[BROWS:.*]] = nn.reshape %[[B1]] : {{.*}} -> tensor<1x4096xf32>
// CHECK: %[[ROWS:.*]] = nn.concat %[[BROWS]], %{{.*}}, %{{.*}} axis 0 : {{.*}} -> tensor<5x4096xf32>
// CHECK: %[[WIDE:.*]] = nn.cast %[[ROWS]]
// CHECK: %[[SQUARES:.*]] = nn.mul %[[WIDE]], %[[WIDE]]
// CHECK: %[[CHUNKS:.*]] = nn.reduce sum %[[SQUARES]] [1] : {{.*}} -> tensor<5xf64>
// CHECK: %[[ALONE:.*]] = nn.slice %[[CHUNKS]] axis 0 from 0 to 1
// CHECK: %[[OFB:.*]] = nn.reshape %[[ALONE]]
// CHECK: nn.slice %[[CHUNKS]] axis 0 from 1 to 5
// CHECK: %[[TURNED:.*]] = nn.transpose %{{.*}} [1, 0] : (tensor<2x2xf64>)
// CHECK: %[[CHAINS:.*]] = nn.reduce sum %[[TURNED]] [0] : {{.*}} -> tensor<2xf64>
// CHECK: nn.slice %[[CHAINS]] axis 0 from 0 to 1
// CHECK: %[[OFA:.*]] = nn.reshape
// CHECK: nn.slice %[[CHAINS]] axis 0 from 1 to 2
// CHECK: %[[OFC:.*]] = nn.reshape
// CHECK: nn.slice %[[B]] axis 0 from 4096 to 4106
// CHECK: nn.concat {{.*}} -> tensor<2x10xf32>
// CHECK: nn.reduce sum {{.*}} [1] : {{.*}} -> tensor<2xf64>
// CHECK: %[[WHOLEB:.*]] = nn.add %[[OFB]]
// CHECK: %[[OFD:.*]] = nn.reshape
// CHECK: return %[[OFA]], %[[WHOLEB]], %[[OFC]], %[[OFD]]
func.func @norm(%a: tensor<64x128xf32>, %b: tensor<4106xf32>, %c: tensor<8192xf32>, %d: tensor<2x5xf32>)
    -> (tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) {
  %0 = nn.sum_squares %a : tensor<64x128xf32>
  %1 = nn.sum_squares %b : tensor<4106xf32>
  %2 = nn.sum_squares %c : tensor<8192xf32>
  %3 = nn.sum_squares %d : tensor<2x5xf32>
  return %0, %1, %2, %3 : tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>
}

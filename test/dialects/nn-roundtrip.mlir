// Every op is printed and read back as it was, with all its options.
// RUN: cinch-opt %s --verify-roundtrip | FileCheck %s

// CHECK-LABEL: func.func @constants
func.func @constants() {
  // CHECK: nn.constant 5.000000e-01 : tensor<8x4xf32, #nn.batch<0>>
  %0 = nn.constant 0.5 : tensor<8x4xf32, #nn.batch<0>>
  // CHECK: nn.constant 0xFFF0000000000000 : tensor<f32>
  %1 = nn.constant 0xFFF0000000000000 : tensor<f32>
  // CHECK: nn.vector [5.000000e-01, 2.000000e-01] : tensor<2xf32>
  %2 = nn.vector [0.5, 0.2] : tensor<2xf32>
  // CHECK: nn.range : tensor<7xi32>
  %3 = nn.range : tensor<7xi32>
  // CHECK: nn.random bool key 77 of 9.000000e-01 : tensor<8x4xi1, #nn.batch<0>>
  %4 = nn.random bool key 77 of 0.9 : tensor<8x4xi1, #nn.batch<0>>
  // CHECK: nn.random normal key -1 : tensor<4xf32>
  %5 = nn.random normal key -1 : tensor<4xf32>
  // CHECK: nn.step
  %6 = nn.step
  // CHECK: nn.total_steps
  %7 = nn.total_steps
  // CHECK: nn.run_value 3 of 1.000000e-01
  %8 = nn.run_value 3 of 0.1
  return
}

// CHECK-LABEL: func.func @element_wise
func.func @element_wise(%x: tensor<8x4xf32, #nn.batch<0>>, %i: tensor<3xi32>, %c: tensor<3xi1>) {
  // CHECK: nn.softplus %{{.*}} : tensor<8x4xf32, #nn.batch<0>>
  %0 = nn.softplus %x : tensor<8x4xf32, #nn.batch<0>>
  // CHECK: nn.pow %{{.*}}, %{{.*}} : tensor<8x4xf32, #nn.batch<0>>
  %1 = nn.pow %x, %0 : tensor<8x4xf32, #nn.batch<0>>
  // CHECK: nn.compare le %{{.*}}, %{{.*}} : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
  %2 = nn.compare le %i, %i : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
  // CHECK: nn.where
  %3 = nn.where %c, %i, %i : (tensor<3xi1>, tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
  // CHECK: nn.cast %{{.*}} : (tensor<3xi1>) -> tensor<3xf32>
  %4 = nn.cast %2 : (tensor<3xi1>) -> tensor<3xf32>
  // CHECK: nn.not
  %5 = nn.not %2 : tensor<3xi1>
  return
}

// CHECK-LABEL: func.func @shapes
func.func @shapes(%x: tensor<8x6xf32, #nn.batch<0>>, %b: tensor<6xf32>) {
  // CHECK: nn.broadcast %{{.*}} [1] : (tensor<6xf32>) -> tensor<8x6xf32, #nn.batch<0>>
  %0 = nn.broadcast %b [1] : (tensor<6xf32>) -> tensor<8x6xf32, #nn.batch<0>>
  // CHECK: nn.transpose %{{.*}} [1, 0] : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<6x8xf32, #nn.batch<1>>
  %1 = nn.transpose %x [1, 0] : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<6x8xf32, #nn.batch<1>>
  // CHECK: nn.reshape
  %2 = nn.reshape %x : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x2x3xf32, #nn.batch<0>>
  // CHECK: nn.slice %{{.*}} axis 1 from 2 to 5
  %3 = nn.slice %x axis 1 from 2 to 5 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x3xf32, #nn.batch<0>>
  // CHECK: nn.pad %{{.*}} axis 1 before 1 after 0 :
  %4 = nn.pad %x axis 1 before 1 after 0 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x7xf32, #nn.batch<0>>
  // CHECK: nn.pad %{{.*}} axis 0 before 0 after 2 value 1.000000e+00
  %5 = nn.pad %b axis 0 before 0 after 2 value 1.0 : (tensor<6xf32>) -> tensor<8xf32>
  // CHECK: nn.concat %{{.*}}, %{{.*}} axis 1
  %6 = nn.concat %x, %3 axis 1 : (tensor<8x6xf32, #nn.batch<0>>, tensor<8x3xf32, #nn.batch<0>>) -> tensor<8x9xf32, #nn.batch<0>>
  // CHECK: nn.reverse %{{.*}} axis 1
  %7 = nn.reverse %x axis 1 : tensor<8x6xf32, #nn.batch<0>>
  return
}

// CHECK-LABEL: func.func @sums
func.func @sums(%x: tensor<8x6xf32, #nn.batch<0>>, %w: tensor<4x6xf32>, %ids: tensor<8x3xi32, #nn.batch<0>>) {
  // CHECK: nn.reduce max %{{.*}} [1]
  %0 = nn.reduce max %x [1] : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8xf32, #nn.batch<0>>
  // CHECK: nn.contract %{{.*}} [0, 2], %{{.*}} [1, 2]
  %1 = nn.contract %x [0, 2], %w [1, 2] : (tensor<8x6xf32, #nn.batch<0>>, tensor<4x6xf32>) -> tensor<8x4xf32, #nn.batch<0>>
  // CHECK: nn.cast %{{.*}} : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x6xbf16, #nn.batch<0>>
  %half = nn.cast %x : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x6xbf16, #nn.batch<0>>
  // CHECK: nn.contract %{{.*}} : (tensor<8x6xbf16, #nn.batch<0>>, tensor<4x6xf32>) -> tensor<8x4xbf16, #nn.batch<0>>
  %narrow = nn.contract %half [0, 2], %w [1, 2] : (tensor<8x6xbf16, #nn.batch<0>>, tensor<4x6xf32>) -> tensor<8x4xbf16, #nn.batch<0>>
  // CHECK: nn.gather %{{.*}} [-1, 2] at(%{{.*}}) {{\[\[}}0, 1]]
  %2 = nn.gather %w [-1, 2] at (%ids) [[0, 1]] : (tensor<4x6xf32>, tensor<8x3xi32, #nn.batch<0>>) -> tensor<8x3x6xf32, #nn.batch<0>>
  // CHECK: nn.scatter_add %{{.*}} [-1, 2] at(%{{.*}}) {{\[\[}}0, 1]]
  %3 = nn.scatter_add %2 [-1, 2] at (%ids) [[0, 1]] : (tensor<8x3x6xf32, #nn.batch<0>>, tensor<8x3xi32, #nn.batch<0>>) -> tensor<4x6xf32>
  // CHECK: nn.softmax %{{.*}} axis 1
  %4 = nn.softmax %x axis 1 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x6xf32, #nn.batch<0>>
  // CHECK: nn.argmax %{{.*}} axis 1
  %y = nn.argmax %x axis 1 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8xi32, #nn.batch<0>>
  // CHECK: nn.cross_entropy %{{.*}}, %{{.*}} axis 1 smooth 1.000000e-01 except 3
  %5 = nn.cross_entropy %x, %y axis 1 smooth 0.1 except 3 : (tensor<8x6xf32, #nn.batch<0>>, tensor<8xi32, #nn.batch<0>>) -> tensor<8xf32, #nn.batch<0>>
  // CHECK: nn.cross_entropy_grad %{{.*}}, %{{.*}}, %{{.*}} axis 1 :
  %6 = nn.cross_entropy_grad %x, %y, %5 axis 1 : (tensor<8x6xf32, #nn.batch<0>>, tensor<8xi32, #nn.batch<0>>, tensor<8xf32, #nn.batch<0>>) -> tensor<8x6xf32, #nn.batch<0>>
  // CHECK: nn.softmax_grad
  %7 = nn.softmax_grad %4, %x axis 1 : tensor<8x6xf32, #nn.batch<0>>
  return
}

// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<2x4x3x8xf32, #nn.batch<0>>, %k: tensor<2x2x5x8xf32, #nn.batch<0>>, %keys: tensor<2x5xi1, #nn.batch<0>>,
                     %bias: tensor<4x3x5xf32>) {
  // CHECK: nn.attend %{{.*}}, %{{.*}}, %{{.*}} keys %{{.*}} bias %{{.*}} scale 2.500000e-01 causal dropout 1.000000e-01 key 5
  %o, %lse = nn.attend %q, %k, %k keys %keys bias %bias scale 0.25 causal dropout 0.1 key 5 : (tensor<2x4x3x8xf32, #nn.batch<0>>, tensor<2x2x5x8xf32, #nn.batch<0>>, tensor<2x2x5x8xf32, #nn.batch<0>>, tensor<2x5xi1, #nn.batch<0>>, tensor<4x3x5xf32>) -> (tensor<2x4x3x8xf32, #nn.batch<0>>, tensor<2x4x3xf32, #nn.batch<0>>)
  // CHECK: nn.attend_grad {{.*}} bias %{{.*}} scale 2.500000e-01 :
  %dq, %dk, %dv, %db = nn.attend_grad %q, %k, %k, %o, %lse, %o bias %bias scale 0.25 : (tensor<2x4x3x8xf32, #nn.batch<0>>, tensor<2x2x5x8xf32, #nn.batch<0>>, tensor<2x2x5x8xf32, #nn.batch<0>>, tensor<2x4x3x8xf32, #nn.batch<0>>, tensor<2x4x3xf32, #nn.batch<0>>, tensor<2x4x3x8xf32, #nn.batch<0>>, tensor<4x3x5xf32>) -> (tensor<2x4x3x8xf32, #nn.batch<0>>, tensor<2x2x5x8xf32, #nn.batch<0>>, tensor<2x2x5x8xf32, #nn.batch<0>>, tensor<4x3x5xf32>)
  return
}

// CHECK-LABEL: func.func @windows
func.func @windows(%x: tensor<2x9x8x4xf32, #nn.batch<0>>, %w: tensor<3x3x2x6xf32>) {
  // CHECK: nn.conv output %{{.*}}, %{{.*}} stride [2, 1] pad [1, 0] dilate [1, 2] groups 2 :
  %y = nn.conv output %x, %w stride [2, 1] pad [1, 0] dilate [1, 2] groups 2 : (tensor<2x9x8x4xf32, #nn.batch<0>>, tensor<3x3x2x6xf32>) -> tensor<2x5x4x6xf32, #nn.batch<0>>
  // CHECK: nn.conv image
  %dx = nn.conv image %y, %w stride [2, 1] pad [1, 0] dilate [1, 2] groups 2 : (tensor<2x5x4x6xf32, #nn.batch<0>>, tensor<3x3x2x6xf32>) -> tensor<2x9x8x4xf32, #nn.batch<0>>
  // CHECK: nn.conv filter {{.*}} stride [2, 1] pad [1, 0] dilate [1, 2] groups 2 : {{.*}} -> tensor<3x3x2x6xf32>
  %dw = nn.conv filter %x, %y stride [2, 1] pad [1, 0] dilate [1, 2] groups 2 : (tensor<2x9x8x4xf32, #nn.batch<0>>, tensor<2x5x4x6xf32, #nn.batch<0>>) -> tensor<3x3x2x6xf32>
  // CHECK: nn.max_pool %{{.*}} window [3, 2] stride [2, 2] pad [1, 0] :
  %m, %place = nn.max_pool %x window [3, 2] stride [2, 2] pad [1, 0] : (tensor<2x9x8x4xf32, #nn.batch<0>>) -> (tensor<2x5x4x4xf32, #nn.batch<0>>, tensor<2x5x4x4xi32, #nn.batch<0>>)
  // CHECK: nn.max_pool_grad %{{.*}}, %{{.*}} window [3, 2]
  %dm = nn.max_pool_grad %place, %m window [3, 2] stride [2, 2] pad [1, 0] : (tensor<2x5x4x4xi32, #nn.batch<0>>, tensor<2x5x4x4xf32, #nn.batch<0>>) -> tensor<2x9x8x4xf32, #nn.batch<0>>
  // CHECK: nn.sum_pool %{{.*}} window [3, 2]
  %s = nn.sum_pool %x window [3, 2] stride [2, 2] pad [1, 0] : (tensor<2x9x8x4xf32, #nn.batch<0>>) -> tensor<2x5x4x4xf32, #nn.batch<0>>
  // CHECK: nn.sum_pool_grad %{{.*}} window [3, 2]
  %ds = nn.sum_pool_grad %s window [3, 2] stride [2, 2] pad [1, 0] : (tensor<2x5x4x4xf32, #nn.batch<0>>) -> tensor<2x9x8x4xf32, #nn.batch<0>>
  return
}

// CHECK-LABEL: func.func @state
func.func @state(%s: tensor<6xf32>, %x: tensor<8x6xf32, #nn.batch<0>>) {
  // CHECK: nn.new_state "norm.mean" %{{.*}} : tensor<6xf32>
  %0 = nn.new_state "norm.mean" %s : tensor<6xf32>
  // CHECK: nn.reshape %{{.*}} : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<2x4x6xf32, #nn.batch<0, group = 4>>
  %groups = nn.reshape %x : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<2x4x6xf32, #nn.batch<0, group = 4>>
  // CHECK: nn.group_mean %{{.*}} group 4 : tensor<8x6xf32, #nn.batch<0>>
  %1 = nn.group_mean %x group 4 : tensor<8x6xf32, #nn.batch<0>>
  // CHECK: nn.cast %{{.*}} : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x6xbf16, #nn.batch<0 : pitch = 8>>
  %padded = nn.cast %x : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<8x6xbf16, #nn.batch<0 : pitch = 8>>
  return
}

// CHECK-LABEL: func.func @updates
func.func @updates(%p: tensor<4x3xf32>, %m: tensor<4x3xf32>, %v: tensor<4x3xf32>) {
  // CHECK: nn.sum_squares %{{.*}} : tensor<4x3xf32>
  %0 = nn.sum_squares %p : tensor<4x3xf32>
  // CHECK: nn.clip_factor %{{.*}} limit 1.000000e+00
  %1 = nn.clip_factor %0 limit 1.0
  // CHECK: nn.learning_rate 1.000000e-01 <step, {{.*}}, at = [10, 20]> horizon 0
  %2 = nn.learning_rate 0.1 <step, warmup = 5.0, end = 0.0, power = 1.0, factor = 0.5, every = 0.0, decay = 0.0, at = [10, 20]> horizon 0
  %3 = nn.step
  // CHECK: nn.update %{{.*}}, %{{.*}} lr %{{.*}} factor %{{.*}} state %{{.*}} by <sgd, lr = 1.000000e-01, momentum = 9.000000e-01, nesterov = true, decay = 1.000000e-02> :
  %4, %5 = nn.update %p, %p lr %2 factor %1 state %m by <sgd, lr = 0.1, momentum = 0.9, decay = 0.01, nesterov = true> : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<f64>, tensor<f64>, tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>)
  // CHECK: nn.update %{{.*}}, %{{.*}} lr %{{[0-9]+}} by <sgd, lr = 1.000000e-01, momentum = 0.000000e+00, nesterov = false, decay = 0.000000e+00> :
  %6 = nn.update %p, %p lr %2 by <sgd, lr = 0.1> : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<f64>) -> tensor<4x3xf32>
  // CHECK: nn.update {{.*}} by <adamw, lr = 1.000000e-01, decay = 1.000000e-01, betas = (9.000000e-01, 0.98999999999999999), eps = 1.000000e-08>
  %7, %8, %9 = nn.update %p, %p lr %2 state %m, %v by <adamw, lr = 0.1, betas = (0.9, 0.99), decay = 0.1> : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<f64>, tensor<4x3xf32>, tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>)
  return
}

// CHECK-LABEL: func.func @loop
// CHECK: nn.scan trips 3 reverse from(%{{.*}}) slices(%{{.*}}, %{{.*}}) before(%{{.*}}) first(%{{.*}}) with(%{{.*}})
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<4x8xf32, #nn.batch<0>>, %{{.*}}: tensor<4x8xf32, #nn.batch<0>>, %{{.*}}: tensor<2x4x8xf32, #nn.batch<1>>,
// CHECK: nn.yield
func.func @loop(%h: tensor<4x8xf32, #nn.batch<0>>, %x: tensor<3x4x8xf32, #nn.batch<1>>, %y: tensor<6x4x8xf32, #nn.batch<1>>, %w: tensor<8xf32>)
    -> (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<6x4x8xf32, #nn.batch<1>>) {
  %r:3 = nn.scan trips 3 reverse from(%h) slices(%x, %y) before(%x) first(%h) with(%w)
      : (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<6x4x8xf32, #nn.batch<1>>, tensor<3x4x8xf32, #nn.batch<1>>,
         tensor<4x8xf32, #nn.batch<0>>, tensor<8xf32>)
        -> (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<6x4x8xf32, #nn.batch<1>>) {
  ^bb0(%a: tensor<4x8xf32, #nn.batch<0>>, %b: tensor<4x8xf32, #nn.batch<0>>, %c: tensor<2x4x8xf32, #nn.batch<1>>,
       %d: tensor<4x8xf32, #nn.batch<0>>, %v: tensor<8xf32>):
    %s = nn.add %a, %b : tensor<4x8xf32, #nn.batch<0>>
    %p = nn.mul %s, %d : tensor<4x8xf32, #nn.batch<0>>
    %q = nn.neg %c : tensor<2x4x8xf32, #nn.batch<1>>
    nn.yield %s, %p, %q : tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>, tensor<2x4x8xf32, #nn.batch<1>>
  }
  return %r#0, %r#1, %r#2 : tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<6x4x8xf32, #nn.batch<1>>
}

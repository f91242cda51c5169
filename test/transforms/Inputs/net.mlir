// A product, its loss and its gradient by hand, and an update: what the tests of the planning passes start from.
func.func @train(%w: tensor<3x4xf32> {nn.path = "w"}, %x: tensor<8x4xf32, #nn.batch<0>> {nn.field = 0})
    -> (tensor<3x4xf32> {nn.path = "w"}, tensor<f32> {nn.name = "loss"}) {
  %y = nn.contract %x [0, 2], %w [1, 2] : (tensor<8x4xf32, #nn.batch<0>>, tensor<3x4xf32>) -> tensor<8x3xf32, #nn.batch<0>> loc("net"("net.cinch":3:1))
  %t = nn.tanh %y : tensor<8x3xf32, #nn.batch<0>> loc("net"("net.cinch":3:2))
  %r = nn.reduce sum %t [0, 1] : (tensor<8x3xf32, #nn.batch<0>>) -> tensor<f32> loc("net.cinch":4:1)
  %one = nn.constant 1.0 {nn.backward} : tensor<8x3xf32, #nn.batch<0>> loc("net.cinch":4:1)
  %tt = nn.mul %t, %t {nn.backward} : tensor<8x3xf32, #nn.batch<0>> loc("net.cinch":4:1)
  %d = nn.sub %one, %tt {nn.backward} : tensor<8x3xf32, #nn.batch<0>> loc("net.cinch":4:1)
  %dw = nn.contract %d [2, 0], %x [2, 1] {nn.backward} : (tensor<8x3xf32, #nn.batch<0>>, tensor<8x4xf32, #nn.batch<0>>) -> tensor<3x4xf32> loc("net.cinch":4:1)
  %lr = nn.constant 0.1 : tensor<3x4xf32> loc("net.cinch":5:1)
  %step = nn.mul %dw, %lr {nn.backward} : tensor<3x4xf32> loc("net.cinch":5:1)
  %new = nn.sub %w, %step {nn.backward} : tensor<3x4xf32> loc("net.cinch":5:1)
  return %new, %r : tensor<3x4xf32>, tensor<f32>
}

// An op that decompose-ops writes out.
func.func @train(%w: tensor<3x4xf32> {nn.path = "w"}, %x: tensor<8x4xf32, #nn.batch<0>> {nn.field = 0})
    -> (tensor<3x4xf32> {nn.path = "w"}, tensor<f32> {nn.name = "loss"}) {
  %s = nn.softmax %x axis 1 : (tensor<8x4xf32, #nn.batch<0>>) -> tensor<8x4xf32, #nn.batch<0>>
  %l = nn.reduce sum %s [0, 1] : (tensor<8x4xf32, #nn.batch<0>>) -> tensor<f32>
  return %w, %l : tensor<3x4xf32>, tensor<f32>
}

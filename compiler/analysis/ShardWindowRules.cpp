// ShardWindowRules.cpp: the ways in which convolutions, pools and states can be shared: by channels.
#include "compiler/analysis/ShardForms.h"

using namespace mlir;

namespace cinch::analysis {

// One group: by the channels of the result, or by those that are summed. Several: each shard has whole groups, with their channels of the
// operand and of the result. A weight gradient that a program writes itself stays whole.
void ShardForms::conv(nn::ConvOp op, SmallVector<Way> &ways) {
  if (op.getGives() == nn::ConvPart::Filter)
    return;
  bool forward = op.getGives() == nn::ConvPart::Output;
  Value in = op.getLhs(), filter = op.getRhs();
  int64_t channels = nn::tensorOf(in).getRank() - 1; // the axis, of operand and result
  int64_t summed = forward ? 2 : 3, kept = forward ? 3 : 2; // axes of the filter
  if (op.getGroups() > 1) {
    ShardForm all{channels, 1}, ofFilter{3, 1}; // that axis has the channels of the output, group by group
    if (int64_t(op.getGroups()) % shards == 0 && shardType(nn::tensorOf(op.getResult()), all, shards))
      add(ways, Way{{need(in, all), need(filter, ofFilter)}, {all}, false, false});
    return;
  }
  auto byRow = [&](int64_t behind) {
    add(ways, Way{{need(in, {channels, behind}), need(filter, {summed, behind})}, {ShardForm()}, false, true});
  };
  for (ShardForm form : SmallVector<ShardForm>(values[in].forms))
    if (form.axis == channels)
      byRow(form.behind);
  for (ShardForm form : SmallVector<ShardForm>(values[filter].forms)) {
    ShardForm result{channels, form.behind};
    if (form.axis == summed)
      byRow(form.behind);
    if (form.axis == kept && shardType(nn::tensorOf(op.getResult()), result, shards))
      add(ways, Way{{kShared, need(filter, form)}, {result}, false, false});
  }
}

// Windows lie in the two axes before the channels.
void ShardForms::pool(Operation *op, SmallVector<Way> &ways) {
  Value x = op->getOperand(0);
  int64_t channels = nn::tensorOf(x).getRank() - 1;
  for (ShardForm form : SmallVector<ShardForm>(values[x].forms))
    if (form.axis == channels)
      add(ways, Way{{need(x, form)}, SmallVector<ShardForm>(op->getNumResults(), form), false, false});
}

// A state lies as its new value does.
void ShardForms::newState(nn::NewStateOp op, SmallVector<Way> &ways) {
  for (ShardForm form : SmallVector<ShardForm>(values[op.getX()].forms))
    if (!form.isWhole())
      add(ways, Way{{need(op.getX(), form), need(states.lookup(op.getPath()), form)}, {form}, false, false});
}

} // namespace cinch::analysis

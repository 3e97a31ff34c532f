// Every check of a step, by one lie each: the tiny plan's records are changed in memory, and
// the message names the lie. A check that is taken out lets its lie through, or leaves it to
// another one, whose message does not fit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "lib/ops/step_attrs.h"
#include "lib/plan/check_step_records.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_records.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Records : public PlanRecords {
 public:
  using PlanRecords::PlanRecords;
  std::string error() const {
    const Status status = verify_steps(view());
    return status.ok() ? "" : status.error().message;
  }
};

class OpRules : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new ktx::testing::TempDir;
    const Status written = write_plan(make_tiny_plan(true), dir_->path("p"));
    ASSERT_TRUE(written.ok()) << written.error().message;
    plan_ = new PlanFile(PlanFile::open(dir_->path("p")).take());
  }
  static void TearDownTestSuite() {
    delete plan_;
    delete dir_;
  }
  Records records() const { return Records(plan_->view()); }

  static ktx::testing::TempDir* dir_;
  static PlanFile* plan_;
};
ktx::testing::TempDir* OpRules::dir_ = nullptr;
PlanFile* OpRules::plan_ = nullptr;

TEST_F(OpRules, TakeThePlanAsItIs) {
  EXPECT_EQ(records().error(), "");
}

// Each operand of each op: 't' another type, 'r' rows of another kind, 'w' another width.
TEST_F(OpRules, KnowTypeRowsAndWidthOfEveryOperand) {
  struct Row {
    StepOp op;
    int nth;
    char side;
    uint32_t number;
    const char* name;
    const char* lies;
  };
  constexpr Row kRows[] = {
      {StepOp::Embed, 0, 'o', 0, "y", "trw"},
      {StepOp::RmsNorm, 0, 'o', 0, "y", "trw"},
      {StepOp::Quantize, 0, 'o', 0, "xq", "t"},
      {StepOp::Matmul, 0, 'i', 0, "x", "tw"},
      {StepOp::Matmul, 0, 'i', 1, "xq", "tw"},
      {StepOp::Matmul, 0, 'o', 0, "y", "trw"},
      {StepOp::MatmulHeads, 0, 'i', 0, "x", "t"},
      {StepOp::MatmulHeads, 0, 'o', 0, "y", "tr"},
      {StepOp::MatmulHeads, 1, 'i', 1, "xq", "tw"},
      {StepOp::Rope, 1, 'i', 0, "x", "tr"},
      {StepOp::Rope, 1, 'o', 0, "y", "tr"},
      {StepOp::KvStore, 0, 'i', 0, "key", "trw"},
      {StepOp::KvStore, 0, 'i', 1, "value", "trw"},
      {StepOp::Attention, 0, 'i', 0, "q", "trw"},
      {StepOp::Attention, 0, 'o', 0, "y", "trw"},
      {StepOp::Glu, 0, 'i', 0, "gate", "t"},
      {StepOp::Glu, 0, 'i', 1, "up", "trw"},
      {StepOp::Glu, 0, 'o', 0, "y", "trw"},
      {StepOp::Router, 0, 'i', 0, "logits", "trw"},
      {StepOp::Router, 0, 'o', 0, "ids", "trw"},
      {StepOp::Router, 0, 'o', 1, "weights", "trw"},
      {StepOp::GroupExperts, 0, 'i', 0, "ids", "w"},
      {StepOp::GroupExperts, 0, 'o', 0, "order", "trw"},
      {StepOp::GroupExperts, 0, 'o', 1, "offsets", "trw"},
      {StepOp::ExpertsGateUp, 0, 'i', 0, "x", "tr"},
      {StepOp::ExpertsGateUp, 0, 'i', 2, "order", "w"},
      {StepOp::ExpertsGateUp, 0, 'i', 3, "offsets", "w"},
      {StepOp::ExpertsGateUp, 0, 'o', 0, "h", "trw"},
      {StepOp::ExpertsDown, 0, 'i', 0, "h", "trw"},
      {StepOp::ExpertsDown, 0, 'i', 1, "hq", "tw"},
      {StepOp::ExpertsDown, 0, 'i', 4, "weights", "trw"},
      {StepOp::ExpertsDown, 0, 'o', 0, "y", "trw"},
      {StepOp::ExpertsDown, 1, 'o', 0, "y", "trw"},
      {StepOp::SumExperts, 0, 'i', 1, "ids", "w"},
      {StepOp::SumExperts, 0, 'o', 0, "y", "tr"},
      {StepOp::Add, 0, 'i', 0, "a", "t"},
      {StepOp::Add, 0, 'i', 1, "b", "trw"},
      {StepOp::Add, 0, 'o', 0, "y", "trw"},
      {StepOp::SigmoidScale, 0, 'i', 0, "x", "t"},
      {StepOp::SigmoidScale, 0, 'i', 1, "gate", "trw"},
      {StepOp::SigmoidScale, 0, 'o', 0, "y", "trw"},
      {StepOp::GatherRows, 0, 'i', 0, "x", "tr"},
      {StepOp::GatherRows, 0, 'o', 0, "y", "trw"},
      {StepOp::Scale, 0, 'i', 0, "x", "t"},
      {StepOp::Scale, 0, 'o', 0, "y", "trw"},
      {StepOp::PositionScale, 0, 'i', 0, "x", "tr"},
      {StepOp::PositionScale, 0, 'o', 0, "y", "trw"},
      {StepOp::CausalConv, 0, 'i', 0, "x", "tr"},
      {StepOp::CausalConv, 0, 'o', 0, "y", "tr"},
      {StepOp::DeltaRule, 0, 'i', 0, "x", "tr"},
      {StepOp::DeltaRule, 0, 'i', 1, "b", "trw"},
      {StepOp::DeltaRule, 0, 'o', 0, "y", "tr"},
      {StepOp::StateSpace, 0, 'i', 0, "x", "tr"},
      {StepOp::StateSpace, 0, 'i', 1, "dt", "trw"},
      {StepOp::StateSpace, 0, 'o', 0, "y", "tr"},
      {StepOp::SelectiveScan, 0, 'i', 0, "x", "trw"},
      {StepOp::SelectiveScan, 0, 'i', 1, "dt", "trw"},
      {StepOp::SelectiveScan, 0, 'i', 2, "in_out", "tr"},
      {StepOp::SelectiveScan, 0, 'o', 0, "y", "trw"},
      {StepOp::LayerNorm, 0, 'o', 0, "y", "trw"},
      {StepOp::HeadScale, 0, 'i', 0, "x", "t"},
      {StepOp::HeadScale, 0, 'i', 1, "gate", "trw"},
      {StepOp::HeadScale, 0, 'o', 0, "y", "trw"},
      {StepOp::Activate, 0, 'i', 0, "x", "t"},
      {StepOp::Activate, 0, 'o', 0, "y", "trw"},
      {StepOp::ChoosePositions, 0, 'i', 0, "q", "trw"},
      {StepOp::ChoosePositions, 0, 'i', 1, "weights", "trw"},
      {StepOp::ChoosePositions, 0, 'o', 0, "positions", "trw"},
      {StepOp::SparseAttention, 0, 'i', 0, "q", "tr"},
      {StepOp::SparseAttention, 0, 'o', 0, "y", "tr"},
      {StepOp::ChooseBlocks, 0, 'i', 0, "q", "trw"},
      {StepOp::ChooseBlocks, 0, 'o', 0, "blocks", "trw"},
      {StepOp::BlockAttention, 0, 'i', 0, "q", "trw"},
      {StepOp::BlockAttention, 0, 'o', 0, "y", "tr"},
      {StepOp::ChoosePositions, 1, 'i', 0, "q", "trw"},
      {StepOp::CompressedAttention, 0, 'i', 0, "q", "tr"},
      {StepOp::CompressedAttention, 0, 'o', 0, "y", "tr"},
      {StepOp::StreamWeights, 0, 'i', 0, "mixes", "t"},
      {StepOp::CollapseStreams, 0, 'i', 0, "x", "t"},
      {StepOp::CollapseStreams, 0, 'o', 0, "y", "tr"},
      {StepOp::MixStreams, 0, 'i', 0, "x", "t"},
      {StepOp::MixStreams, 0, 'i', 1, "part", "tr"},
      {StepOp::AltUpWeights, 0, 'i', 0, "coefs", "tw"},
      {StepOp::AltUpWeights, 0, 'o', 0, "weights", "trw"},
      {StepOp::MatchRms, 0, 'i', 0, "x", "t"},
      {StepOp::MatchRms, 0, 'i', 1, "like", "tr"},
      {StepOp::MatchRms, 0, 'o', 0, "y", "trw"},
      {StepOp::GaussianTopK, 0, 'i', 0, "x", "t"},
      {StepOp::GaussianTopK, 0, 'o', 0, "y", "trw"},
      {StepOp::AttendStreams, 0, 'i', 0, "x", "tw"},
      {StepOp::AttendStreams, 0, 'i', 1, "an earlier stream", "trw"},
      {StepOp::AttendStreams, 0, 'o', 0, "y", "tr"},
      {StepOp::GivenRows, 0, 'i', 0, "x", "tr"},
      {StepOp::GivenRows, 0, 'o', 0, "y", "trw"},
      {StepOp::EmbedGrid, 0, 'o', 0, "y", "trw"},
      {StepOp::RopeGrid, 0, 'i', 0, "x", "trw"},
      {StepOp::RopeGrid, 0, 'o', 0, "y", "trw"},
      {StepOp::PoolRows, 0, 'i', 0, "x", "tr"},
      {StepOp::PoolRows, 0, 'o', 0, "y", "trw"},
      {StepOp::PoolRows, 1, 'o', 0, "y", "trw"},
  };
  for (const Row& row : kRows) {
    for (const char* lie = row.lies; *lie; ++lie) {
      Records r = records();
      const StepRecord& step = r.step(row.op, row.nth);
      OperandRecord& operand = row.side == 'i' ? r.in(step, row.number) : r.out(step, row.number);
      const ValueRecord& value = r.values[operand.value];
      const bool integer = value.type == static_cast<uint8_t>(ValueType::I32);
      const bool per_token = value.rows == static_cast<uint8_t>(RowKind::Token);
      std::string message = row.name;
      switch (*lie) {
        case 't':
          operand.value = r.id(integer ? "probs" : "ids");
          message += " has elements of type";
          break;
        case 'r':
          operand.value =
              integer ? r.id(per_token ? "offsets" : "ids") : r.id(per_token ? "last" : "x");
          message += " has rows of kind";
          break;
        default:
          operand.width += 1;
          message += fmt::format(" is {} wide, expected {}", operand.width, operand.width - 1);
      }
      EXPECT_THAT(r.error(), HasSubstr(message))
          << info(row.op).name << " " << row.name << " " << *lie;
    }
  }
}

struct Lie {
  StepOp op;
  int nth;
  std::function<void(Records&, StepRecord&)> tell;
  const char* message;
};

// A lie about one field of a step's attributes.
template <class Attrs, class Field, class Value>
Lie attribute(StepOp op, int nth, Field Attrs::*field, Value value, const char* message) {
  const auto tell = [field, value](Records& r, StepRecord& step) {
    r.attrs<Attrs>(step).*field = static_cast<Field>(value);
  };
  return {op, nth, tell, message};
}

// The same about a field that the step's attributes end before.
template <class Attrs, class Field, class Value>
Lie later(StepOp op, int nth, Field Attrs::*field, Value value, const char* message) {
  const auto tell = [field, value](Records& r, StepRecord& step) {
    Attrs attrs;
    std::memcpy(&attrs, &r.attrs<Attrs>(step), step.attrs_size);
    attrs.*field = static_cast<Field>(value);
    r.give_attrs(step, attrs);
  };
  return {op, nth, tell, message};
}

class OpLies : public OpRules {
 protected:
  void expect(const std::vector<Lie>& lies) {
    for (const Lie& lie : lies) {
      Records r = records();
      lie.tell(r, r.step(lie.op, lie.nth));
      EXPECT_THAT(r.error(), HasSubstr(lie.message)) << info(lie.op).name;
    }
  }
};

TEST_F(OpLies, AboutAttributes) {
  expect({
      attribute(StepOp::RmsNorm, 0, &RmsNormAttrs::groups, 0, "groups is 0"),
      attribute(StepOp::RmsNorm, 0, &RmsNormAttrs::groups, 65537, "groups is 65537"),
      attribute(StepOp::RmsNorm, 0, &RmsNormAttrs::groups, 3, "3 groups in 64 elements"),
      attribute(StepOp::RmsNorm, 0, &RmsNormAttrs::eps, kInfinity, "eps is inf"),
      attribute(StepOp::RmsNorm, 0, &RmsNormAttrs::eps, -1, "eps is -1"),
      attribute(StepOp::Quantize, 1, &QuantizeAttrs::rows_per_token, 0, "rows_per_token is 0"),
      attribute(StepOp::Quantize, 1, &QuantizeAttrs::rows_per_token, 2, "xq is 128 wide"),
      attribute(StepOp::Quantize, 1, &QuantizeAttrs::stride, -1, "stride is -1"),
      attribute(StepOp::Quantize, 1, &QuantizeAttrs::stride, 33, "4 rows of 32, 33 apart, of 128"),
      attribute(StepOp::Matmul, 0, &MatmulAttrs::accumulate, 2, "accumulate is 2"),
      attribute(StepOp::MatmulHeads, 1, &MatmulHeadsAttrs::heads, 0, "heads is 0"),
      attribute(StepOp::MatmulHeads, 1, &MatmulHeadsAttrs::heads, 3, ", 4], expected ["),
      attribute(StepOp::MatmulHeads, 1, &MatmulHeadsAttrs::transposed, 2, "transposed is 2"),
      attribute(StepOp::MatmulHeads, 1, &MatmulHeadsAttrs::row_begin, -1, "row_begin is -1"),
      attribute(StepOp::MatmulHeads, 1, &MatmulHeadsAttrs::row_count, 0, "row_count is 0"),
      attribute(StepOp::MatmulHeads, 1, &MatmulHeadsAttrs::x_stride, 31, "x_stride is 31"),
      attribute(StepOp::MatmulHeads, 1, &MatmulHeadsAttrs::y_stride, 31, "y_stride is 31"),
      attribute(StepOp::MatmulHeads, 1, &MatmulHeadsAttrs::x_stride, 33, "of 128 elements of x"),
      attribute(StepOp::MatmulHeads, 1, &MatmulHeadsAttrs::y_stride, 33, "of 128 elements of y"),
      attribute(StepOp::Rope, 1, &RopeAttrs::heads, 0, "heads is 0"),
      attribute(StepOp::Rope, 1, &RopeAttrs::head_dim, 0, "head_dim is 0"),
      attribute(StepOp::Rope, 1, &RopeAttrs::y_head_dim, 0, "y_head_dim is 0"),
      attribute(StepOp::Rope, 1, &RopeAttrs::rotary_dim, 0, "rotary_dim is 0"),
      attribute(StepOp::Rope, 1, &RopeAttrs::rotary_dim, 15, "rotary_dim is 15, expected an even"),
      attribute(StepOp::Rope, 1, &RopeAttrs::rotary_begin, -1, "rotary_begin is -1"),
      attribute(StepOp::Rope, 1, &RopeAttrs::rotary_begin, 33, "rotary_begin is 33"),
      attribute(StepOp::Rope, 1, &RopeAttrs::y_begin, -1, "y_begin is -1"),
      attribute(StepOp::Rope, 1, &RopeAttrs::y_begin, 33, "y_begin is 33"),
      attribute(StepOp::Rope, 1, &RopeAttrs::interleaved, 2, "interleaved is 2"),
      attribute(StepOp::Rope, 1, &RopeAttrs::mscale, kInfinity, "mscale is inf"),
      attribute(StepOp::KvStore, 0, &KvStoreAttrs::slot, -1, "slot is -1"),
      attribute(StepOp::KvStore, 0, &KvStoreAttrs::slot, 8, "slot is 8"),
      attribute(StepOp::Attention, 0, &AttentionAttrs::slot, -1, "slot is -1"),
      attribute(StepOp::Attention, 0, &AttentionAttrs::heads, 0, "heads is 0"),
      attribute(StepOp::Attention, 0, &AttentionAttrs::heads, 3, "3 heads share 2"),
      attribute(StepOp::Attention, 0, &AttentionAttrs::value_in_key, 2, "value_in_key is 2"),
      attribute(StepOp::Attention, 0, &AttentionAttrs::value_in_key, 1, "values in the key over"),
      attribute(StepOp::Attention, 0, &AttentionAttrs::kv_heads, 4, "4 heads of 32 over a slot"),
      attribute(StepOp::Attention, 0, &AttentionAttrs::key_dim, 16, "2 heads of 16 over a slot"),
      attribute(StepOp::Attention, 0, &AttentionAttrs::value_dim, 31, "values of 31 over a slot"),
      attribute(StepOp::Attention, 1, &AttentionAttrs::value_dim, 0, "value_dim is 0"),
      attribute(StepOp::Attention, 1, &AttentionAttrs::value_in_key, 0, "values of 32 over a slot"),
      attribute(StepOp::Attention, 0, &AttentionAttrs::scale, kInfinity, "scale is inf"),
      attribute(StepOp::Router, 0, &RouterAttrs::experts, 0, "experts is 0"),
      attribute(StepOp::Router, 0, &RouterAttrs::top_k, 0, "top_k is 0"),
      attribute(StepOp::Router, 0, &RouterAttrs::groups, 0, "groups is 0"),
      attribute(StepOp::Router, 0, &RouterAttrs::groups_used, 3, "groups_used is 3"),
      attribute(StepOp::Router, 0, &RouterAttrs::scoring, 4, "scoring is 4"),
      attribute(StepOp::Router, 0, &RouterAttrs::normalize, 2, "normalize is 2"),
      attribute(StepOp::Router, 0, &RouterAttrs::group_score, 2, "group_score is 2"),
      attribute(StepOp::Router, 0, &RouterAttrs::scale, kInfinity, "scale is inf"),
      attribute(StepOp::Router, 0, &RouterAttrs::groups, 3, "4 experts in 3 groups"),
      attribute(StepOp::Router, 0, &RouterAttrs::top_k, 3, "3 experts of 1 groups of 2"),
      attribute(StepOp::Router, 0, &RouterAttrs::scoring, 3, "a sparse mixer with"),
      attribute(StepOp::Scale, 0, &ScaleAttrs::factor, kInfinity, "factor is inf"),
      attribute(StepOp::PositionScale, 0, &PositionScaleAttrs::growth, -0.1f, "growth is -0.1"),
      attribute(StepOp::PositionScale, 0, &PositionScaleAttrs::growth, kInfinity, "growth is inf"),
      attribute(StepOp::PositionScale, 0, &PositionScaleAttrs::context, 0, "context is 0"),
      attribute(StepOp::CausalConv, 0, &CausalConvAttrs::state, -1, "state is -1"),
      attribute(StepOp::CausalConv, 0, &CausalConvAttrs::channels, 0, "channels is 0"),
      attribute(StepOp::CausalConv, 0, &CausalConvAttrs::channels, 63, "x is 64 wide, expected 63"),
      attribute(StepOp::CausalConv, 0, &CausalConvAttrs::taps, 1, "taps is 1"),
      attribute(StepOp::CausalConv, 0, &CausalConvAttrs::taps, 5, "w is [4, 64], expected [5, 64]"),
      attribute(StepOp::CausalConv, 0, &CausalConvAttrs::plain, 2, "plain is 2"),
      attribute(StepOp::CausalConv, 1, &CausalConvAttrs::dilation, 0, "dilation is 0"),
      attribute(StepOp::EmbedNgrams, 0, &EmbedNgramsAttrs::size, 1, "size is 1"),
      attribute(StepOp::EmbedNgrams, 0, &EmbedNgramsAttrs::heads, 0, "heads is 0"),
      attribute(StepOp::EmbedNgrams, 0, &EmbedNgramsAttrs::heads, 200, "rows is 400"),
      attribute(StepOp::EmbedNgrams, 0, &EmbedNgramsAttrs::heads, 2, "y is 128 wide, expected 256"),
      attribute(StepOp::EmbedNgrams, 0, &EmbedNgramsAttrs::end, 48, "end is 48"),
      attribute(StepOp::EmbedNgrams, 0, &EmbedNgramsAttrs::state, -1, "state is -1"),
      attribute(StepOp::StateSpace, 0, &StateSpaceAttrs::state, 1, "state 1 is used twice"),
      attribute(StepOp::StateSpace, 0, &StateSpaceAttrs::heads, 0, "heads is 0"),
      attribute(StepOp::StateSpace, 0, &StateSpaceAttrs::head_dim, 1025, "head_dim is 1025"),
      attribute(StepOp::StateSpace, 0, &StateSpaceAttrs::groups, 0, "groups is 0"),
      attribute(StepOp::StateSpace, 0, &StateSpaceAttrs::groups, 3, "2 heads share 3 groups"),
      attribute(StepOp::StateSpace, 0, &StateSpaceAttrs::state_dim, 0, "state_dim is 0"),
      attribute(StepOp::StateSpace, 0, &StateSpaceAttrs::step_min, -1, "steps are limited to -1"),
      attribute(StepOp::SelectiveScan, 0, &SelectiveScanAttrs::channels, 0, "channels is 0"),
      attribute(StepOp::SelectiveScan, 0, &SelectiveScanAttrs::state_dim, 1025,
                "state_dim is 1025"),
      attribute(StepOp::SelectiveScan, 0, &SelectiveScanAttrs::state, 1, "state 1 is used twice"),
      attribute(StepOp::StateSpace, 0, &StateSpaceAttrs::state_dim, 15,
                "x is 64 wide, expected 62"),
      attribute(StepOp::DeltaRule, 0, &DeltaRuleAttrs::state, 0, "state 0 is used twice"),
      attribute(StepOp::DeltaRule, 0, &DeltaRuleAttrs::key_heads, 0, "key_heads is 0"),
      attribute(StepOp::DeltaRule, 0, &DeltaRuleAttrs::key_heads, 3, "2 value heads share 3"),
      attribute(StepOp::DeltaRule, 0, &DeltaRuleAttrs::value_heads, 0, "value_heads is 0"),
      attribute(StepOp::DeltaRule, 0, &DeltaRuleAttrs::head_dim, 1025, "head_dim is 1025"),
      attribute(StepOp::DeltaRule, 0, &DeltaRuleAttrs::tiled, 2, "tiled is 2"),
      attribute(StepOp::LayerNorm, 0, &LayerNormAttrs::groups, 65537, "groups is 65537"),
      attribute(StepOp::LayerNorm, 0, &LayerNormAttrs::groups, 3, "3 groups in 64 elements"),
      attribute(StepOp::LayerNorm, 0, &LayerNormAttrs::eps, kInfinity, "eps is inf"),
      attribute(StepOp::LayerNorm, 0, &LayerNormAttrs::eps, -1, "eps is -1"),
      attribute(StepOp::Activate, 0, &ActivateAttrs::function, 9, "function is 9"),
      attribute(StepOp::Activate, 0, &ActivateAttrs::function, 7, "limit is 0"),
      attribute(StepOp::HeadScale, 0, &HeadScaleAttrs::heads, 0, "0 heads do not divide"),
      attribute(StepOp::HeadScale, 0, &HeadScaleAttrs::heads, 3, "3 heads do not divide"),
      attribute(StepOp::HeadScale, 0, &HeadScaleAttrs::heads, 2, "gate is 1 wide, expected 2"),
      attribute(StepOp::HeadScale, 0, &HeadScaleAttrs::function, 2, "function is 2"),
      // A field that came later, which the record of the tiny plan ends before.
      {StepOp::DeltaRule, 0,
       [](Records& r, StepRecord& step) {
         DeltaRuleAttrs attrs = r.attrs<DeltaRuleAttrs>(step);
         attrs.lower_bound = -5;
         r.give_attrs(step, attrs);
       },
       "lower_bound is -5"},
      attribute(StepOp::DeltaRule, 0, &DeltaRuleAttrs::by_channel, 2, "by_channel is 2"),
      attribute(StepOp::DeltaRule, 0, &DeltaRuleAttrs::by_channel, 1, "a is missing"),
      attribute(StepOp::ChoosePositions, 0, &ChoosePositionsAttrs::slot, 8, "slot is 8"),
      attribute(StepOp::ChoosePositions, 0, &ChoosePositionsAttrs::slot, 1,
                "one head of 16 without values over a slot with 1 of 48"),
      attribute(StepOp::ChoosePositions, 0, &ChoosePositionsAttrs::slot, 0,
                "one head of 16 without values over a slot with 2 of 32"),
      attribute(StepOp::ChoosePositions, 0, &ChoosePositionsAttrs::heads, 0, "heads is 0"),
      attribute(StepOp::ChoosePositions, 0, &ChoosePositionsAttrs::key_dim, 15, "one head of 15"),
      attribute(StepOp::ChoosePositions, 0, &ChoosePositionsAttrs::top_k, 0, "top_k is 0"),
      attribute(StepOp::ChoosePositions, 0, &ChoosePositionsAttrs::top_k, 65537, "top_k is 65537"),
      attribute(StepOp::ChoosePositions, 0, &ChoosePositionsAttrs::top_k, 7,
                "positions is 8 wide, expected 7"),
      attribute(StepOp::SparseAttention, 0, &AttentionAttrs::slot, 8, "slot is 8"),
      attribute(StepOp::SparseAttention, 0, &AttentionAttrs::heads, 3, "q is 192 wide"),
      attribute(StepOp::SparseAttention, 0, &AttentionAttrs::window, 4, "a window of 4"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::slot, 8, "slot is 8"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::slot, 0,
                "one head of 16 without values over a slot with 2 of 32"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::heads, 0, "heads is 0"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::heads, 1, "q is 32 wide, expected 16"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::top_k, 0, "top_k is 0"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::top_k, 16385, "top_k is 16385"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::top_k, 2,
                "blocks is 6 wide, expected 4"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::block, 0, "block is 0"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::block, 257, "block is 257"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::local, 0, "local is 0"),
      attribute(StepOp::ChooseBlocks, 0, &ChooseBlocksAttrs::local, 4, "local is 4"),
      attribute(StepOp::BlockAttention, 0, &BlockAttentionAttrs::slot, 8, "slot is 8"),
      attribute(StepOp::BlockAttention, 0, &BlockAttentionAttrs::heads, 3, "3 heads share 2"),
      attribute(StepOp::BlockAttention, 0, &BlockAttentionAttrs::block, 8,
                "2 key heads read blocks of 8, but 2 heads choose blocks of 4"),
      later(StepOp::BlockAttention, 0, &BlockAttentionAttrs::open, 2, "open is 2"),
      later(StepOp::BlockAttention, 0, &BlockAttentionAttrs::open, 1,
            "blocks does not come from a choose_positions step"),
      attribute(StepOp::BlockAttention, 1, &BlockAttentionAttrs::open, 0,
                "blocks does not come from a choose_blocks step"),
      attribute(StepOp::BlockAttention, 1, &BlockAttentionAttrs::block, 8,
                "entries of 8 with an open one, chosen among those of 4"),
      attribute(StepOp::BlockAttention, 1, &BlockAttentionAttrs::value_in_key, 0,
                "values of 32 over a slot with values of 0"),
      later(StepOp::ChoosePositions, 0, &ChoosePositionsAttrs::open, 1, "open is 1"),
      later(StepOp::ChoosePositions, 1, &ChoosePositionsAttrs::open, 1,
            "positions is 8 wide, expected 9"),
      attribute(StepOp::ChoosePositions, 2, &ChoosePositionsAttrs::open, 0,
                "positions is 9 wide, expected 8"),
      attribute(StepOp::ChoosePositions, 1, &ChoosePositionsAttrs::every, 3,
                "an entry of 3 positions, expected 2 to 64 or a multiple of 64"),
      attribute(StepOp::ChoosePositions, 1, &ChoosePositionsAttrs::every, 8,
                "entries of 16 for 8 positions each in a slot with 1 heads of 4"),
      attribute(StepOp::Compress, 0, &CompressAttrs::slot, 8, "slot is 8"),
      attribute(StepOp::Compress, 0, &CompressAttrs::slot, 5,
                "32 channels with scores in a slot with 1 heads"),
      attribute(StepOp::Compress, 0, &CompressAttrs::entries, 8, "entries is 8"),
      attribute(StepOp::Compress, 0, &CompressAttrs::entries, 5, "and a window of 8"),
      attribute(StepOp::Compress, 0, &CompressAttrs::every, 1, "an entry of 1 positions"),
      attribute(StepOp::Compress, 0, &CompressAttrs::every, -64, "an entry of -64 positions"),
      attribute(StepOp::Compress, 0, &CompressAttrs::overlapped, 2, "overlapped is 2"),
      attribute(StepOp::Compress, 0, &CompressAttrs::overlapped, 0,
                "16 channels with scores in a slot"),
      attribute(StepOp::Compress, 0, &CompressAttrs::dim, 0, "dim is 0"),
      attribute(StepOp::Compress, 0, &CompressAttrs::rotary_dim, 18, "rotary_dim is 18"),
      attribute(StepOp::Compress, 0, &CompressAttrs::rotary_dim, 15, "expected an even number"),
      attribute(StepOp::Compress, 0, &CompressAttrs::rotary_dim, 0,
                "inv_freq given for 0 rotated elements"),
      attribute(StepOp::Compress, 0, &CompressAttrs::rotary_dim, 8,
                "inv_freq has 8 elements, expected 4"),
      attribute(StepOp::Compress, 0, &CompressAttrs::interleaved, 2, "interleaved is 2"),
      attribute(StepOp::Compress, 0, &CompressAttrs::eps, -1, "eps is -1"),
      attribute(StepOp::Compress, 1, &CompressAttrs::from_first, 2, "from_first is 2"),
      attribute(StepOp::Compress, 1, &CompressAttrs::overlapped, 1, "channels in a slot"),
      attribute(StepOp::CompressedAttention, 0, &CompressedAttentionAttrs::slot, 8, "slot is 8"),
      attribute(StepOp::CompressedAttention, 0, &CompressedAttentionAttrs::entries, 8,
                "entries is 8"),
      attribute(StepOp::CompressedAttention, 0, &CompressedAttentionAttrs::entries, 3,
                "in a slot with 2 heads of 16"),
      attribute(StepOp::CompressedAttention, 0, &CompressedAttentionAttrs::heads, 3,
                "q is 64 wide, expected 48"),
      attribute(StepOp::CompressedAttention, 0, &CompressedAttentionAttrs::window, 0,
                "window is 0"),
      attribute(StepOp::CompressedAttention, 0, &CompressedAttentionAttrs::window, 9,
                "a window of 9 over a slot that keeps 8 positions"),
      attribute(StepOp::CompressedAttention, 0, &CompressedAttentionAttrs::every, 5,
                "an entry of 5 positions"),
      attribute(StepOp::StreamWeights, 0, &StreamWeightsAttrs::streams, 0, "streams is 0"),
      attribute(StepOp::StreamWeights, 0, &StreamWeightsAttrs::streams, 17, "streams is 17"),
      attribute(StepOp::StreamWeights, 0, &StreamWeightsAttrs::streams, 3,
                "mixes is 8 wide, expected 15"),
      attribute(StepOp::StreamWeights, 0, &StreamWeightsAttrs::iterations, -1, "iterations is -1"),
      attribute(StepOp::StreamWeights, 0, &StreamWeightsAttrs::iterations, 0,
                "mixes is 8 wide, expected 2"),
      attribute(StepOp::StreamWeights, 0, &StreamWeightsAttrs::eps, -1, "eps is -1"),
      attribute(StepOp::AltUpWeights, 0, &AltUpWeightsAttrs::streams, 17, "streams is 17"),
      attribute(StepOp::AltUpWeights, 0, &AltUpWeightsAttrs::active, 2, "active is 2"),
      attribute(StepOp::AltUpWeights, 0, &AltUpWeightsAttrs::corrects, 2, "corrects is 2"),
      attribute(StepOp::AltUpWeights, 0, &AltUpWeightsAttrs::corrects, 1,
                "coefs is 4 wide, expected 2"),
      attribute(StepOp::MatchRms, 0, &MatchRmsAttrs::eps, -1, "eps is -1"),
      attribute(StepOp::GaussianTopK, 0, &GaussianTopKAttrs::deviations, kInfinity,
                "deviations is inf"),
      attribute(StepOp::AttendStreams, 0, &AttendStreamsAttrs::eps, -1, "eps is -1"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::heads, 0, "heads is 0"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::heads, 3, "x is 64 wide, expected 96"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::head_dim, 1, "head_dim is 1"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::rotary_dim, 34, "rotary_dim is 34"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::rotary_dim, 31, "expected an even number"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::rotary_dim, 24,
                "inv_freq has 16 elements, expected 12"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::lines, 17, "lines is 17"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::columns, 13, "columns is 13"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::woven, 2, "woven is 2"),
      attribute(StepOp::EmbedGrid, 0, &EmbedGridAttrs::side, 0, "side is 0"),
      attribute(StepOp::EmbedGrid, 0, &EmbedGridAttrs::side, 4, "table has 9 rows, expected 16"),
      attribute(StepOp::GivenRows, 0, &GivenRowsAttrs::part, -1, "part is -1"),
      attribute(StepOp::GivenRows, 1, &GivenRowsAttrs::part, 2, "part 2 of rows of images"),
      attribute(StepOp::RopeGrid, 0, &RopeGridAttrs::interleaved, 2, "interleaved is 2"),
      attribute(StepOp::PoolRows, 0, &PoolRowsAttrs::side, 0, "side is 0"),
      attribute(StepOp::PoolRows, 0, &PoolRowsAttrs::side, 4097, "side is 4097"),
      attribute(StepOp::PoolRows, 0, &PoolRowsAttrs::unfold, 3, "unfold is 3"),
      attribute(StepOp::PoolRows, 0, &PoolRowsAttrs::unfold, 1, "y is 64 wide, expected 256"),
      attribute(StepOp::PoolRows, 1, &PoolRowsAttrs::side, 3, "y is 256 wide, expected 576"),
      attribute(StepOp::Glu, 1, &GluAttrs::up_limit, -1, "up_limit is -1"),
      attribute(StepOp::Glu, 1, &GluAttrs::activation, 0, "up_limit is 25"),
      attribute(StepOp::GroupExperts, 0, &GroupExpertsAttrs::top_k, 1, "1 of 4 experts, but the"),
      attribute(StepOp::ExpertsGateUp, 0, &ExpertsAttrs::accumulate, 1, "accumulate is 1"),
      attribute(StepOp::ExpertsGateUp, 0, &ExpertsAttrs::top_k, 1, "grouped as 2 of 4"),
      attribute(StepOp::ExpertsDown, 0, &ExpertsAttrs::accumulate, 2, "accumulate is 2"),
      attribute(StepOp::ExpertsDown, 1, &ExpertsAttrs::by_pair, 2, "by_pair is 2"),
      attribute(StepOp::ExpertsDown, 1, &ExpertsAttrs::by_pair, 0, "y is 128 wide, expected 64"),
      attribute(StepOp::ExpertsDown, 1, &ExpertsAttrs::accumulate, 1,
                "rows of pairs are not added"),
      attribute(StepOp::SumExperts, 0, &SumExpertsAttrs::top_k, 1, "top_k is 1, the router's 2"),
      attribute(StepOp::SumExperts, 0, &SumExpertsAttrs::accumulate, 2, "accumulate is 2"),
  });
}

// Steps that read or write beyond the row they are given.
TEST_F(OpLies, AboutRanges) {
  const auto in = [](uint32_t i, uint32_t width) {
    return [=](Records& r, StepRecord& step) { r.in(step, i).width = width; };
  };
  const auto out = [](uint32_t o, uint32_t width) {
    return [=](Records& r, StepRecord& step) { r.out(step, o).width = width; };
  };
  expect({
      {StepOp::Quantize, 1, in(0, 127), "4 rows of 32, 32 apart, of 127 elements"},
      {StepOp::MatmulHeads, 1, in(0, 127), "4 heads of 32, 32 apart, of 127 elements of x"},
      {StepOp::MatmulHeads, 1, out(0, 127), "4 heads of 32, 32 apart, of 127 elements of y"},
      {StepOp::Rope, 1, in(0, 47), "1 heads of 48 in 47 elements of x"},
      {StepOp::Rope, 1, out(0, 47), "1 heads of 48 in 47 elements of y"},
      {StepOp::Rope, 2, in(0, 191), "4 heads of 48 in 191 elements of x"},
      {StepOp::Rope, 2, out(0, 191), "4 heads of 48 in 191 elements of y"},
  });
}

TEST_F(OpLies, AboutWeights) {
  const auto shape = [](uint32_t i, int64_t matrices, int64_t rows, int64_t cols) {
    return [=](Records& r, StepRecord& step) {
      BlobRecord& blob = r.weight(step, i);
      blob.matrices = matrices, blob.rows = rows, blob.cols = cols;
    };
  };
  const auto integers = [](Records& r, StepRecord& step) {
    r.weight(step, 0).dtype = static_cast<uint16_t>(DType::I32);
  };
  expect({
      {StepOp::Embed, 0, shape(0, 1, 47, 64), "table has 47 rows for 48 tokens"},
      {StepOp::Embed, 0, shape(0, 2, 48, 64), "table has 96 rows for 48 tokens"},
      {StepOp::RmsNorm, 0, shape(0, 1, 1, 65), "weight has 65 elements, expected 64"},
      {StepOp::LayerNorm, 0, shape(0, 1, 1, 65), "weight has 65 elements, expected 64"},
      {StepOp::LayerNorm, 0, shape(1, 1, 1, 65), "bias has 65 elements, expected 64"},
      {StepOp::Matmul, 1, shape(1, 1, 1, 65), "bias has 65 elements, expected 64"},
      {StepOp::MatmulHeads, 1, shape(0, 5, 64, 32), "w is [32, 64, 5]"},
      {StepOp::Rope, 0, shape(0, 1, 1, 15), "inv_freq has 15 elements, expected 16"},
      {StepOp::Rope, 0,
       [](Records& r, StepRecord& step) {
         r.weight(step, 0).dtype = static_cast<uint16_t>(DType::F16);
       },
       "inv_freq is not F32"},
      {StepOp::RopeGrid, 0, shape(0, 1, 1, 15), "inv_freq has 15 elements, expected 16"},
      {StepOp::Router, 0, shape(0, 1, 1, 5), "bias has 5 elements, expected 4"},
      {StepOp::Router, 0, shape(1, 1, 1, 3), "factors has 3 elements, expected 4"},
      {StepOp::ExpertsGateUp, 0, shape(5, 1, 1, 6), "factors has 6 elements, expected 4"},
      {StepOp::ExpertsGateUp, 0, shape(0, 5, 96, 64), "gate is [64, 96, 5]"},
      {StepOp::ExpertsGateUp, 0, shape(0, 4, 96, 32), "gate is [32, 96, 4]"},
      {StepOp::ExpertsGateUp, 0, shape(1, 4, 95, 64), "up is [64, 95, 4]"},
      {StepOp::ExpertsDown, 0, shape(0, 3, 64, 96), "down is [96, 64, 3]"},
      {StepOp::Matmul, 0, integers, "weight 0 has integer elements"},
  });
}

TEST_F(OpLies, AboutValues) {
  const auto wider = [](const char* name) {
    return [=](Records& r, StepRecord&) { r.value(name).width += 1; };
  };
  expect({
      {StepOp::RmsNorm, 0, [](Records& r, StepRecord& s) { r.in(s, 0).value = r.id("ids"); },
       "x is not F32"},
      {StepOp::LayerNorm, 0, [](Records& r, StepRecord& s) { r.in(s, 0).value = r.id("ids"); },
       "x is not F32"},
      {StepOp::Quantize, 0, [](Records& r, StepRecord& s) { r.in(s, 0).value = r.id("ids"); },
       "x is not F32"},
      {StepOp::Quantize, 0, [](Records& r, StepRecord& s) { r.out(s, 0).offset = 32; },
       "xq is 1 rows of 64, expected 1 of 64"},
      {StepOp::ExpertsGateUp, 0,
       [](Records& r, StepRecord& s) {
         r.in(s, 1) = {r.id("mla_latent_q"), 0, 128};
       },
       "xq is 128 wide, expected 64"},
      {StepOp::Rope, 0,
       [](Records& r, StepRecord& step) {
         r.attrs<RopeAttrs>(step).rotary_dim = 16;
         r.attrs<RopeAttrs>(step).y_begin = 8;
         r.weight(step, 0).cols = 8;
       },
       "in place with another place of the rotary part"},
      {StepOp::RopeGrid, 0, [](Records& r, StepRecord& s) { r.out(s, 0).value = r.id("n"); },
       "y is not x"},
      {StepOp::GivenRows, 0, [](Records& r, StepRecord& s) { s = r.step(StepOp::MatchRms); },
       "the facts and the steps differ on whether rows of images"},
      {StepOp::KvStore, 0, [](Records& r, StepRecord& s) { r.in(s, 1).value = kNone; },
       "value missing for a slot with values of 32"},
      {StepOp::KvStore, 1, [](Records& r, StepRecord&) { r.slots[1].value_dim = 32; },
       "value missing for a slot with values of 32"},
      {StepOp::KvStore, 0, [](Records& r, StepRecord&) { r.slots[0].value_dim = 0; },
       "value given for a slot with values of 0"},
      {StepOp::KvStore, 0, [](Records& r, StepRecord& step) { r.step(StepOp::Attention) = step; },
       "slot 0 is stored twice"},
      {StepOp::KvStore, 0, [](Records& r, StepRecord& step) { step = r.step(StepOp::Embed); },
       "slot 0 is read before it is stored"},
      {StepOp::Router, 0, wider("ids"), "ids are a part of a value"},
      {StepOp::GroupExperts, 0, wider("order"), "ids, order or offsets are a part of a value"},
      {StepOp::GroupExperts, 0, wider("offsets"), "ids, order or offsets are a part of a value"},
      {StepOp::GroupExperts, 0, [](Records& r, StepRecord& s) { r.in(s, 0).value = r.id("order"); },
       "ids does not come from a router step"},
      {StepOp::ExpertsGateUp, 0, [](Records& r, StepRecord& s) { r.in(s, 2).value = r.id("ids"); },
       "order does not come from a group_experts step"},
      {StepOp::ExpertsGateUp, 0,
       [](Records& r, StepRecord& s) { r.in(s, 3).value = r.id("order"); },
       "offsets does not come from a group_experts step"},
      {StepOp::ChoosePositions, 0, wider("positions"), "positions are a part of a value"},
      {StepOp::ChoosePositions, 0, [](Records& r, StepRecord&) { r.slots[2].window = 64; },
       "a slot that keeps 64 positions"},
      {StepOp::KvStore, 2, [](Records& r, StepRecord& step) { step = r.step(StepOp::Embed); },
       "slot 2 is read before it is stored"},
      {StepOp::SparseAttention, 0,
       [](Records& r, StepRecord& s) {
         r.in(s, 1) = {r.id("ids"), 0, 2};
       },
       "positions does not come from a choose_positions step"},
      {StepOp::ChooseBlocks, 0, wider("blocks"), "blocks are a part of a value"},
      {StepOp::BlockAttention, 0, [](Records& r, StepRecord& s) { r.in(s, 1).value = r.id("ids"); },
       "blocks does not come from a choose_blocks step"},
      {StepOp::BlockAttention, 0, [](Records& r, StepRecord&) { r.slots[0].window = 64; },
       "over a slot that keeps 64 positions"},
      {StepOp::Compress, 0, [](Records& r, StepRecord&) { r.slots[3].window = 7; },
       "entries of 8 positions of a slot that keeps 7"},
      {StepOp::CompressedAttention, 0,
       [](Records& r, StepRecord& s) {
         r.in(s, 1) = {r.id("ids"), 0, 2};
       },
       "chosen does not come from a choose_positions step"},
      {StepOp::CompressedAttention, 0,
       [](Records& r, StepRecord& s) {
         r.in(s, 1) = {r.id("positions"), 0, 8};
       },
       "entries of 4 positions, chosen among those of 1"},
  });
}

// Places of a group_experts step, where its experts are not all of the router's.
TEST_F(OpLies, AboutWhichExpertsAreHere) {
  const auto error = [this](StepOp vector_of, int32_t experts, uint16_t dtype) {
    Records r = records();
    StepRecord& group = r.step(StepOp::GroupExperts);
    const uint32_t blob = r.weights[r.step(vector_of).first_weight];
    r.blobs[blob].dtype = dtype;
    group.first_weight = static_cast<uint32_t>(r.weights.size());
    group.weight_count = 1;
    r.weights.push_back(blob);
    r.attrs<GroupExpertsAttrs>(group).experts = experts;
    return r.error();
  };
  const auto f32 = static_cast<uint16_t>(DType::F32), f16 = static_cast<uint16_t>(DType::F16);
  // The router's bias has as many elements as places have.
  EXPECT_THAT(error(StepOp::Router, 4, f32), StrEq(""));
  EXPECT_THAT(error(StepOp::Router, 3, f32), HasSubstr("offsets is 5 wide, expected 4"));
  EXPECT_THAT(error(StepOp::Router, 5, f32), HasSubstr("2 of 5 experts, but the router gives 2"));
  EXPECT_THAT(error(StepOp::Router, 0, f32), HasSubstr("2 of 0 experts, but the router gives 2"));
  EXPECT_THAT(error(StepOp::Router, 4, f16), HasSubstr("places is not F32"));
  EXPECT_THAT(error(StepOp::RmsNorm, 4, f32), HasSubstr("places has "));
}

// Which of a token's choices a group_experts step takes, where these are not all.
TEST_F(OpLies, AboutWhichChoicesAreGrouped) {
  const auto error = [this](const GroupExpertsAttrs& attrs, size_t bytes = 16) {
    Records r = records();
    r.give_attrs(r.step(StepOp::GroupExperts), attrs, bytes);
    return r.error();
  };
  EXPECT_THAT(error({4, 2, 0, 1}), StrEq(""));
  EXPECT_THAT(error({4, 2, 1, 1}), StrEq(""));
  EXPECT_THAT(error({4, 2, 0, 0}), StrEq(""));
  EXPECT_THAT(error({4, 2, 0, 5}, 12), StrEq("")) << "the last field has its default";
  EXPECT_THAT(error({4, 2, 1, 0}), HasSubstr("choices from 1 on, but none of them"));
  EXPECT_THAT(error({4, 2, 1, 1}, 8), StrEq(""));
  EXPECT_THAT(error({4, 2, -1, 1}), HasSubstr("first_rank is -1"));
  EXPECT_THAT(error({4, 2, 2, 1}), HasSubstr("first_rank is 2"));
  EXPECT_THAT(error({4, 2, 0, -1}), HasSubstr("ranks is -1"));
  EXPECT_THAT(error({4, 2, 1, 2}), HasSubstr("ranks is 2"));
  EXPECT_THAT(error({4, 2, 0, 1}, 4), HasSubstr("4 bytes of attributes"));
  EXPECT_THAT(error({4, 2, 0, 1}, 10), HasSubstr("10 bytes of attributes"));
  EXPECT_THAT(error({4, 2, 0, 1}, 20), StrEq(""));
  EXPECT_THAT(error({4, 2, 0, 0, 1}, 20), HasSubstr("guests without places"));
  EXPECT_THAT(error({4, 2, 0, 0, 2}, 20), HasSubstr("guests is 2"));
  EXPECT_THAT(error({4, 2, 0, 1}, 24), HasSubstr("24 bytes of attributes"));
}

// A second grouping between the two products of the experts, whose order has other offsets.
TEST_F(OpLies, AboutWhichStepGroupedTheExperts) {
  Records r = records();
  StepRecord& between = r.step(StepOp::Quantize, 2);
  const uint32_t offsets = r.id("offsets");
  r.buffers.push_back(r.buffers[r.values[offsets].buffer]);
  r.values.push_back(r.values[offsets]);
  r.values.back().buffer = static_cast<uint32_t>(r.buffers.size()) - 1;
  between = r.step(StepOp::GroupExperts);
  const OperandRecord order = r.out(between, 0), other = r.out(between, 1);
  between.first_output = static_cast<uint32_t>(r.operands.size());
  r.operands.push_back(order);
  r.operands.push_back(other);
  r.operands.back().value = static_cast<uint32_t>(r.values.size()) - 1;
  EXPECT_THAT(r.error(), HasSubstr("order and offsets come from different steps"));
}

// The tiny plan has one device; its addition becomes a copy.
TEST_F(OpLies, AboutTransfers) {
  const auto transfer = [](const std::function<void(Records&, StepRecord&)>& lie) {
    return [=](Records& r, StepRecord& step) {
      step.op = static_cast<uint32_t>(StepOp::Transfer);
      step.input_count = 1;
      r.out(step, 0) = {r.id("sum"), 0, 64};
      lie(r, step);
    };
  };
  const std::string error = "only whole values are transferred";
  expect({
      {StepOp::Add, 0, transfer([](Records& r, StepRecord& s) { r.in(s, 0).width = 32; }),
       error.c_str()},
      {StepOp::Add, 0, transfer([](Records& r, StepRecord& s) { r.out(s, 0).width = 32; }),
       error.c_str()},
      {StepOp::Add, 0, transfer([](Records& r, StepRecord& s) { r.out(s, 0).value = r.id("nq"); }),
       "y has elements of type"},
      {StepOp::Add, 0,
       transfer([](Records& r, StepRecord& s) { r.out(s, 0).value = r.id("last"); }),
       "y has rows of kind"},
      {StepOp::Add, 0, transfer([](Records& r, StepRecord& s) {
         r.out(s, 0) = {r.id("h"), 0, 96};
       }),
       "y is 96 wide, expected 64"},
      {StepOp::Add, 0, transfer([](Records& r, StepRecord&) {
         r.values.push_back(r.value("sum"));
         r.values.back().width = 32, r.values.back().rows_per_row = 2;
         r.out(r.step(StepOp::Transfer), 0).value = static_cast<uint32_t>(r.values.size()) - 1;
       }),
       "y has another shape than x"},
      {StepOp::Add, 0, transfer([](Records&, StepRecord&) {}), "it is on cpu and input 0 on cpu"},
  });
}

// --- what all steps have in common ---------------------------------------------------------

TEST_F(OpLies, AboutFieldsOfTheStep) {
  constexpr uint32_t kFar = 1u << 20;
  expect({
      {StepOp::Matmul, 0, [](Records&, StepRecord& s) { s.device = kFar; }, "is no string"},
      {StepOp::Matmul, 0, [](Records&, StepRecord& s) { s.layer = -2; }, "layer is -2"},
      {StepOp::Matmul, 0, [](Records&, StepRecord& s) { s.first_input = kFar; },
       "inputs 1048576 to 1048578"},
      {StepOp::Matmul, 0, [](Records&, StepRecord& s) { s.attrs_offset = kFar; },
       "attributes 1048576 to"},
      {StepOp::Matmul, 0, [](Records& r, StepRecord& s) { r.weights[s.first_weight] = kNone; },
       "weight 0 (w bias?) is missing"},
      {StepOp::Matmul, 0, [](Records& r, StepRecord& s) { r.weights[s.first_weight] = 4000; },
       "weight 4000 of"},
      {StepOp::Matmul, 0,
       [](Records& r, StepRecord& s) { r.weights[s.first_weight] = r.blob("rope_freqs.weight"); },
       "weight 0 is only carried for export"},
      {StepOp::Matmul, 0, [](Records&, StepRecord& s) { s.kernel[1] = kFar; },
       "kernel 1048576 is no string"},
      {StepOp::Matmul, 0, [](Records&, StepRecord& s) { s.first_output = kFar; },
       "outputs 1048576 to 1048577"},
      {StepOp::Matmul, 0, [](Records&, StepRecord& s) { s.first_weight = kFar; },
       "weights 1048576"},
      {StepOp::Matmul, 0, [](Records&, StepRecord& s) { s.attrs_offset += 2; },
       "bytes of attributes at"},
      {StepOp::Matmul, 0, [](Records&, StepRecord& s) { s.output_count = 0; },
       "0 outputs, expected 1"},
      {StepOp::Router, 0, [](Records&, StepRecord& s) { s.output_count = 1; },
       "1 outputs, expected 2"},
      {StepOp::Embed, 0, [](Records&, StepRecord& s) { s.input_count = 1; },
       "1 inputs, expected 0"},
      {StepOp::Matmul, 0, [](Records& r, StepRecord& s) { r.in(s, 0).value = kNone; },
       "input 0 (x xq?) is missing"},
      {StepOp::Matmul, 0, [](Records& r, StepRecord& s) { r.out(s, 0).value = kNone; },
       "output 0 (y) is missing"},
  });
}

TEST_F(OpLies, AboutDevices) {
  const auto elsewhere = [](Records& r, StepRecord& step) { step.device = r.string("none"); };
  expect({
      {StepOp::RmsNorm, 0, elsewhere, "it is on none and input 0 on cpu"},
      {StepOp::Embed, 0, elsewhere, "it is on none and weight 0 on cpu"},
      {StepOp::KvStore, 0, [](Records& r, StepRecord&) { r.slots[0].device = r.string("none"); },
       "it is on cpu and slot 0 on none"},
      {StepOp::Attention, 1, [](Records& r, StepRecord&) { r.slots[1].device = r.string("none"); },
       "it is on cpu and slot 1 on none"},
      // A second embedding writes, on another device, what is on the first.
      {StepOp::Add, 0,
       [](Records& r, StepRecord& step) {
         step = r.step(StepOp::Embed);
         step.device = r.string("none");
       },
       "it is on none and output 0 on cpu"},
  });
}

TEST_F(OpLies, AboutMemory) {
  expect({
      {StepOp::RmsNorm, 0, [](Records& r, StepRecord& s) { r.in(s, 0).value = r.id("sum"); },
       "input 0 reads value 'sum' before it is written"},
      {StepOp::Matmul, 0, [](Records& r, StepRecord& s) { r.attrs<MatmulAttrs>(s).accumulate = 1; },
       "output 0 reads value 'qkv' before it is written"},
      {StepOp::ExpertsDown, 0,
       [](Records& r, StepRecord& s) {
         r.out(s, 0).value = r.id("last"), r.value("last").rows = 0;
       },
       "output 0 reads value 'last' before it is written"},
      // `att` takes the memory of `x`, which the residual still needs.
      {StepOp::Matmul, 2,
       [](Records& r, StepRecord&) { r.value("att").buffer = r.value("x").buffer; },
       "output 0 reads value 'x' before it is written, or after its memory was reused"},
      {StepOp::Add, 0, [](Records& r, StepRecord& s) { r.out(s, 0).value = r.id("sum"); },
       "output 0 overwrites input 1"},
      {StepOp::Matmul, 3,
       [](Records& r, StepRecord&) { r.value("gate").buffer = r.value("x").buffer; },
       "output 0 overwrites input 0"},
      {StepOp::RmsNorm, 1,
       [](Records& r, StepRecord& s) { r.in(s, 0).offset = 64, r.out(s, 0).offset = 0; },
       "output 0 overwrites input 0"},
      {StepOp::Router, 0,
       [](Records& r, StepRecord&) { r.value("probs").buffer = r.value("ids").buffer; },
       "outputs 0 and 1 share memory"},
  });
}

TEST_F(OpLies, AboutTheLogits) {
  const auto error = [&](const std::function<void(Records&)>& lie) {
    Records r = records();
    lie(r);
    return r.error();
  };
  const std::string wrong = "is not the logits of";
  EXPECT_THAT(error([](Records& r) { r.facts.logits_value = 4000; }),
              HasSubstr("logits are value"));
  EXPECT_THAT(error([](Records& r) { r.facts.logits_value = r.id("last"); }), HasSubstr(wrong));
  EXPECT_THAT(error([](Records& r) { r.facts.logits_value = r.id("x"); }), HasSubstr(wrong));
  EXPECT_THAT(error([](Records& r) { r.facts.logits_value = r.id("ids"); }), HasSubstr(wrong));
  EXPECT_THAT(error([](Records& r) { r.facts.vocab_size = 47; }), HasSubstr(wrong));
  EXPECT_THAT(error([](Records& r) { r.value("logits").rows_per_row = 2; }), HasSubstr(wrong));
  EXPECT_THAT(error([](Records& r) { r.steps.clear(); }), HasSubstr("the plan has no steps"));
  EXPECT_THAT(error([](Records& r) { r.steps.pop_back(); }), HasSubstr(wrong));
}

}  // namespace
}  // namespace ktx::plan

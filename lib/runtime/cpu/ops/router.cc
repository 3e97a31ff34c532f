// router, group_experts and sum_experts.
#include "kernels/router/router.h"

#include "lib/program/joint_experts.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"
#include "lib/runtime/cpu/ops/row_step.h"
#include "lib/runtime/cpu/ops/small_weight.h"
#include "lib/runtime/engine/expert_counts.h"
#include "lib/runtime/engine/expert_table.h"
#include "lib/runtime/experts/expert_guests.h"

namespace ktx::runtime {
namespace {

struct RouterStep final : RowStep<kernels::RouterArgs, kernels::RouterFn> {
  Status bind(const BindContext& context) {
    const BoundView logits = context.input(0);
    bias_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(0))));
    factors_ = KTX_TRY(SmallWeight::make(KTX_TRY(context.optional_weight(1))));
    KTX_TRY(bind_table(context));
    args_.logits = logits.f32();
    args_.logits_stride = logits.stride();
    args_.bias = bias_.data();
    args_.factors = factors_.data();
    args_.attrs = context.attrs<RouterAttrs>();
    KTX_TRY(require_whole(context.output(0), "ids"));
    KTX_TRY(require_whole(context.output(1), "weights"));
    args_.ids = context.output(0).i32();
    args_.weights = context.output(1).f32();
    weight_bytes_ = bias_.bytes() + factors_.bytes();
    split_.grain = rows_per_item(16 * logits.width);  // several passes over the scores
    run_ = KTX_TRY(kernels::find_router(context.family(), context.isa));
    return {};
  }
  void use_scratch(kernels::RouterArgs& args, std::byte* scratch) const override {
    args.scratch = reinterpret_cast<float*>(scratch);
  }
  int64_t scratch_bytes() const override {
    return (2 * int64_t{args_.attrs.experts} + args_.attrs.groups) *
           static_cast<int64_t>(sizeof(float));
  }
  StepWork begin(const Batch& batch) override {
    for (int64_t t = 0; args_.table && t < batch.tokens; ++t) {
      if (batch.ids[t] >= table_rows_) return {0, 0, "a token id is outside of the expert table"};
    }
    return RowStep::begin(batch);
  }
  void prepare(const Batch& batch) override { args_.tokens = batch.ids.data(); }

 private:
  // Experts by token id, which the kernel takes as they are.
  Status bind_table(const BindContext& context) {
    const BoundWeight table = KTX_TRY(context.optional_weight(2));
    if (table.matrices == 0) return {};
    const auto attrs = context.attrs<RouterAttrs>();
    args_.table = reinterpret_cast<const int32_t*>(table.matrix.data);
    table_rows_ = table.matrix.rows;
    return check_expert_table({args_.table, static_cast<size_t>(table_rows_ * attrs.top_k)}, attrs);
  }

  SmallWeight bias_, factors_;
  int64_t table_rows_ = 0;
};

class GroupExpertsStep final : public CpuStep {
 public:
  Status bind(const BindContext& context) {
    KTX_TRY(require_whole(context.input(0), "ids"));
    KTX_TRY(require_whole(context.output(0), "order"));
    args_.ids = context.input(0).i32();
    args_.attrs = context.attrs<GroupExpertsAttrs>();
    const BoundWeight places = KTX_TRY(context.optional_weight(0));
    places_ = KTX_TRY(SmallWeight::make(places));
    args_.places = places_.data();
    routed_ = places_.data() ? places.matrix.rows * places.matrix.cols : args_.attrs.experts;
    const auto number = static_cast<uint32_t>(&context.step - context.plan.program->steps.data());
    guests_ = context.guests;
    guest_layer_ = guests_ ? guests_->of_step(number) : nullptr;
    if (guest_layer_) args_.places = guest_layer_->cpu_places.data();
    args_.order = context.output(0).i32();
    args_.offsets = context.output(1).i32();
    if (context.expert_counts) {
      pairs_ = context.expert_counts->cpu_pairs();
      counts_ = context.expert_counts->of_step(number);
    }
    run_ = KTX_TRY(kernels::find_group_experts(context.family(), context.isa));
    return {};
  }
  StepWork begin(const Batch& batch) override {
    args_.tokens = batch.tokens;
    const int32_t of_gpu =
        program::experts_of_gpu(args_.attrs.experts, batch.tokens, batch.joint_tokens);
    args_.first = batch.experts == Batch::Experts::Rest ? of_gpu : 0;
    args_.end = batch.experts == Batch::Experts::OfGpu ? of_gpu : args_.attrs.experts;
    // The kernel counts into an array by id. What the router wrote is in range; in a
    // damaged plan another step may have written over it.
    const int64_t pairs = batch.tokens * args_.attrs.top_k;
    for (int64_t i = 0; i < pairs; ++i) {
      if (args_.ids[i] < 0 || args_.ids[i] >= routed_) {
        return {0, 0, "an expert number is out of range"};
      }
    }
    return {1, 0, nullptr};
  }
  void run(int64_t, std::byte*) override {
    run_(args_);
    if (guest_layer_) {
      const auto pairs = static_cast<size_t>(args_.tokens * args_.attrs.top_k);
      guests_->count(*guest_layer_, {args_.ids, pairs}, args_.tokens);
    }
    if (pairs_) *pairs_ += args_.offsets[args_.attrs.experts];
    for (int32_t e = 0; counts_ && e < args_.attrs.experts; ++e) {
      counts_[e] += static_cast<uint64_t>(args_.offsets[e + 1] - args_.offsets[e]);
    }
  }

 private:
  kernels::GroupExpertsArgs args_;
  int64_t* pairs_ = nullptr;    // what is counted (ExpertCounts), or null
  uint64_t* counts_ = nullptr;  // [experts]
  SmallWeight places_;
  int64_t routed_ = 0;  // experts that the router chooses from
  ExpertGuests* guests_ = nullptr;
  GuestLayer* guest_layer_ = nullptr;  // null: the step's experts stay
  kernels::GroupExpertsFn run_ = nullptr;
};

struct SumExpertsStep final : RowStep<kernels::SumExpertsArgs, kernels::SumExpertsFn> {
  Status bind(const BindContext& context) {
    KTX_TRY(require_whole(context.input(0), "pairs"));
    KTX_TRY(require_whole(context.input(1), "ids"));
    const auto attrs = context.attrs<SumExpertsAttrs>();
    point_to(context.input(0), args_.pairs, args_.pairs_stride);
    args_.ids = context.input(1).i32();
    args_.top_k = attrs.top_k;
    args_.accumulate = attrs.accumulate != 0;
    KTX_TRY(bind_output(context, kernels::find_sum_experts));
    split_.grain = rows_per_item(context.input(0).width);
    return {};
  }
};

}  // namespace

const MakeStep make_router = make_step<RouterStep>;
const MakeStep make_group_experts = make_step<GroupExpertsStep>;
const MakeStep make_sum_experts = make_step<SumExpertsStep>;

}  // namespace ktx::runtime

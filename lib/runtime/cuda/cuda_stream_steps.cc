// Residual streams, and the statistics of rows that AltUp has beside them, on a GPU: one launch
// over the rows, with the arguments of the CPU's kernels.
#include "kernels/cuda/rows/cuda_rows.h"
#include "kernels/cuda/streams/cuda_streams.h"
#include "lib/runtime/cuda/cuda_steps.h"

namespace ktx::runtime {
namespace {

// Args with rows [token_begin, token_end).
template <class Args, Status (*Launch)(const Args&, kernels::CudaStream)>
class RowArgsStep : public GpuStep {
 public:
  Status launch(const GpuShape& shape, std::byte*, int64_t) override {
    Args args = args_;
    args.token_end = shape.rows(rows_);
    gpu_->use();
    return Launch(args, gpu_->stream());
  }

 protected:
  void begin(const CudaBind& context) {
    const CudaView y = context.output(0);
    args_.y = y.f32();
    args_.y_stride = y.stride;
    args_.width = y.width;
    rows_ = y.rows;
    gpu_ = &context.gpu();
  }
  Args args_;

 private:
  RowKind rows_ = RowKind::Token;
  CudaGpu* gpu_ = nullptr;
};

struct StreamWeights final
    : RowArgsStep<kernels::StreamWeightsArgs, kernels::launch_stream_weights> {
  Status bind(const CudaBind& context) {
    begin(context);
    args_.mixes = context.input(0).f32();
    args_.mixes_stride = context.input(0).stride;
    args_.scale = KTX_TRY(context.vector(0, scale_));
    args_.base = KTX_TRY(context.vector(1, base_));
    args_.attrs = context.attrs<StreamWeightsAttrs>();
    return {};
  }
  GpuMemory scale_, base_;
};

struct AltUpWeights final : RowArgsStep<kernels::AltUpWeightsArgs, kernels::launch_altup_weights> {
  Status bind(const CudaBind& context) {
    begin(context);
    args_.coefs = context.input(0).f32();
    args_.coefs_stride = context.input(0).stride;
    args_.attrs = context.attrs<AltUpWeightsAttrs>();
    return {};
  }
};

struct CollapseStreams final
    : RowArgsStep<kernels::CollapseStreamsArgs, kernels::launch_collapse_streams> {
  Status bind(const CudaBind& context) {
    begin(context);
    args_.x = context.input(0).f32();
    args_.x_stride = context.input(0).stride;
    args_.weights = context.input(1).f32();
    args_.weights_stride = context.input(1).stride;
    args_.streams = static_cast<int32_t>(context.input(1).width);
    return {};
  }
};

struct MixStreams final : RowArgsStep<kernels::MixStreamsArgs, kernels::launch_mix_streams> {
  Status bind(const CudaBind& context) {
    begin(context);
    const CudaView x = context.input(0), part = context.input(1), weights = context.input(2);
    if (weights.width * part.width == x.width) {
      return Error{
          "the GPU does not give to streams that are not mixed; put the model's residual streams on "
          "the CPU by a rule"};
    }
    args_.x = x.f32();
    args_.x_stride = x.stride;
    args_.part = part.f32();
    args_.part_stride = part.stride;
    args_.weights = weights.f32();
    args_.weights_stride = weights.stride;
    args_.streams = static_cast<int32_t>(x.width / part.width);
    return {};
  }
};

struct MatchRms final : RowArgsStep<kernels::MatchRmsArgs, kernels::launch_match_rms> {
  Status bind(const CudaBind& context) {
    begin(context);
    const CudaView x = context.input(0), like = context.input(1);
    args_.x = x.f32();
    args_.x_stride = x.stride;
    args_.like = like.f32();
    args_.like_stride = like.stride;
    args_.like_width = like.width;
    args_.attrs = context.attrs<MatchRmsAttrs>();
    return {};
  }
};

struct GaussianTopK final : RowArgsStep<kernels::GaussianTopKArgs, kernels::launch_gaussian_topk> {
  Status bind(const CudaBind& context) {
    begin(context);
    args_.x = context.input(0).f32();
    args_.x_stride = context.input(0).stride;
    args_.attrs = context.attrs<GaussianTopKAttrs>();
    return {};
  }
};

}  // namespace

const MakeCudaStep make_cuda_stream_weights = make_bound<StreamWeights>;
const MakeCudaStep make_cuda_altup_weights = make_bound<AltUpWeights>;
const MakeCudaStep make_cuda_collapse_streams = make_bound<CollapseStreams>;
const MakeCudaStep make_cuda_mix_streams = make_bound<MixStreams>;
const MakeCudaStep make_cuda_match_rms = make_bound<MatchRms>;
const MakeCudaStep make_cuda_gaussian_topk = make_bound<GaussianTopK>;

}  // namespace ktx::runtime

// state_space of the GPU against the scalar op of the CPU, over passes of all kinds
// (cuda_texts_cases.h).
#include "kernels/cuda/state_space/cuda_state_space.h"

#include <algorithm>

#include "kernels/state_space/state_space.h"
#include "tests/kernels/cuda_texts_cases.h"

namespace ktx::kernels {
namespace {

using CudaStateSpace = CudaTest;

constexpr StateSpaceAttrs kShapes[] = {{0, 4, 64, 1, 128},
                                       {0, 6, 24, 2, 20},
                                       {0, 8, 80, 8, 16},
                                       {0, 2, 4, 1, 4},
                                       {0, 2, 40, 1, 132},
                                       {0, 3, 128, 3, 256},
                                       {0, 4, 64, 1, 128, 0.5f, 0.75f}};

// A text's inputs on both sides.
struct SpaceInputs {
  SpaceInputs(Random& random, const StateSpaceAttrs& a, int64_t rows)
      : attrs(a),
        x(random.normals(rows * a.channels())),
        dt(random.normals(rows * a.heads, 2)),
        skip(random.normals(a.heads)),
        dt_bias(random.normals(a.heads)) {
    for (int32_t h = 0; h < a.heads; ++h) decay.push_back(-0.1f - 0.7f * h);
    gpu = std::make_unique<Device>(*this, rows);
  }
  CudaStateSpaceArgs args() const {
    CudaStateSpaceArgs args;
    args.x = gpu->x.data(), args.x_stride = attrs.channels();
    args.dt = gpu->dt.data(), args.dt_stride = attrs.heads;
    args.y = gpu->y.data(), args.y_stride = attrs.width();
    args.decay = gpu->decay.data(), args.skip = gpu->skip.data();
    args.dt_bias = gpu->dt_bias.data();
    args.attrs = attrs;
    return args;
  }

  StateSpaceAttrs attrs;
  std::vector<float> x, dt, skip, dt_bias, decay;
  struct Device {
    Device(const SpaceInputs& in, int64_t rows)
        : x(in.x),
          dt(in.dt),
          skip(in.skip),
          dt_bias(in.dt_bias),
          decay(in.decay),
          y(static_cast<size_t>(rows * in.attrs.width())) {}
    Gpu<float> x, dt, skip, dt_bias, decay, y;
  };
  std::unique_ptr<Device> gpu;
};

TEST_F(CudaStateSpace, IsTheScalarOne) {
  Random random(95);
  for (const StateSpaceAttrs& attrs : kShapes) {
    for (const Pass& pass : kPasses) {
      SCOPED_TRACE(testing::Message() << attrs.state_dim << " by " << attrs.head_dim);
      Slots slots(random, pass, attrs.state_floats());
      const SpaceInputs inputs(random, attrs, slots.rows());
      CudaStateSpaceArgs args = inputs.args();
      args.texts = slots.texts();
      args.states = slots.states();
      ASSERT_TRUE(ran(launch_state_space(args, nullptr)));
      std::vector<float> want(static_cast<size_t>(slots.rows() * attrs.width()));
      for (const StateSegment& segment : slots.segments()) {
        StateSpaceArgs host;
        host.x = inputs.x.data() + segment.first * attrs.channels();
        host.x_stride = attrs.channels();
        host.dt = inputs.dt.data() + int64_t{segment.first} * attrs.heads;
        host.dt_stride = attrs.heads;
        host.y = want.data() + segment.first * attrs.width();
        host.y_stride = attrs.width();
        host.decay = inputs.decay.data(), host.skip = inputs.skip.data();
        host.dt_bias = inputs.dt_bias.data();
        host.attrs = attrs;
        host.state_in = slots.in(segment);
        host.state_out = slots.out(segment);
        host.tokens = segment.tokens;
        host.column_end = attrs.head_dim;
        for (host.head = 0; host.head < attrs.heads; ++host.head) {
          (*find_state_space("state_space", Isa::Scalar))(host);
        }
      }
      expect_rows(inputs.gpu->y.read(), want, 1e-4f);  // sums of up to 256 rows that cancel
      slots.expect_alike(3e-5f);
    }
  }
}

// However a text is cut into passes and segments, and whatever is computed beside it: the same
// bits.
TEST_F(CudaStateSpace, DoesNotDependOnPasses) {
  Random random(96);
  const StateSpaceAttrs attrs{0, 4, 64, 2, 128};
  constexpr int32_t kTokens = 75;
  const SpaceInputs inputs(random, attrs, kTokens);
  std::vector<float> whole;
  for (const std::vector<int32_t>& cut :
       {std::vector<int32_t>{75}, {1, 74}, {40, 35}, {7, 7, 60, 1}}) {
    Gpu<float> slots(static_cast<size_t>((cut.size() + 1) * attrs.state_floats()));
    for (const bool one_pass : {true, false}) {
      std::vector<StateSegment> segments;
      for (int32_t first = 0, slot = 0; int32_t tokens : cut) {
        segments.push_back({first, tokens, first == 0 ? -1 : slot - 1, slot});
        first += tokens, ++slot;
      }
      const auto count = static_cast<int32_t>(segments.size());
      for (int32_t i = 0; i < count; i += one_pass ? count : 1) {
        const std::vector<int32_t> begin = {i, one_pass ? count : i + 1};
        Gpu<int32_t> gpu_begin(begin);
        Gpu<StateSegment> gpu_segments(segments);
        CudaStateSpaceArgs args = inputs.args();
        args.texts = {gpu_begin.data(), gpu_segments.data(), 1, kTokens, false};
        args.states = {slots.data(), attrs.state_floats()};
        ASSERT_TRUE(ran(launch_state_space(args, nullptr)));
      }
      const std::vector<float> y = inputs.gpu->y.read();
      if (whole.empty()) whole = y;
      EXPECT_EQ(y, whole) << cut.size() << " segments, one pass: " << one_pass;
    }
  }
}

}  // namespace
}  // namespace ktx::kernels

// Residual streams of hyper-connections and of AltUp, and attention over earlier ones.
#include "lib/ops/checks/op_checks.h"

#include <algorithm>

#include "lib/formats/shape_limits.h"

namespace ktx::op_checks {

void check_stream_weights(OpCheck& s) {
  const auto& a = s.attrs<StreamWeightsAttrs>();
  constexpr int64_t kMaxIterations = 1000;
  if (!s.in_range("streams", a.streams, 1, kMaxStreams)) return;
  s.in_range("iterations", a.iterations, 0, kMaxIterations);
  s.require(a.eps >= 0, "eps is {}", a.eps);
  s.shape("mixes", s.in(0), ValueType::F32, a.width(), s.in(0).rows);
  s.shape("weights", s.out(0), ValueType::F32, a.width(), s.in(0).rows);
  s.vector("scale", s.weight(0), a.scales());
  s.vector("base", s.weight(1), a.width());
}

void check_collapse_streams(OpCheck& s) {
  const OpOperand& x = s.in(0);
  const int64_t streams = s.in(1).width;
  s.require(streams <= kMaxStreams, "{} streams, expected at most {}", streams, kMaxStreams);
  s.shape("x", x, ValueType::F32, streams * s.out(0).width, x.rows);
  s.shape("weights", s.in(1), ValueType::F32, streams, x.rows);
  s.shape("y", s.out(0), ValueType::F32, s.out(0).width, x.rows);
}

void check_mix_streams(OpCheck& s) {
  const OpOperand& x = s.in(0);
  const int64_t streams = x.width / std::max<int64_t>(s.in(1).width, 1);
  if (!s.in_range("streams", streams, 1, kMaxStreams)) return;
  s.shape("x", x, ValueType::F32, streams * s.in(1).width, x.rows);
  s.shape("part", s.in(1), ValueType::F32, s.in(1).width, x.rows);
  const bool keeps = s.in(2).width == streams;
  s.shape("weights", s.in(2), ValueType::F32, keeps ? streams : streams * (streams + 1), x.rows);
  s.shape("y", s.out(0), ValueType::F32, x.width, x.rows);
}

void check_altup_weights(OpCheck& s) {
  const auto& a = s.attrs<AltUpWeightsAttrs>();
  if (!s.in_range("streams", a.streams, 1, kMaxStreams)) return;
  s.in_range("active", a.active, 0, a.streams - 1);
  s.in_range("corrects", a.corrects, 0, 1);
  s.shape("coefs", s.in(0), ValueType::F32, a.coefs(), s.in(0).rows);
  s.shape("weights", s.out(0), ValueType::F32, a.width(), s.in(0).rows);
}

void check_dot_streams(OpCheck& s) {
  const OpOperand &a = s.in(0), &y = s.out(0);
  if (!s.in_range("streams", y.width, 1, kMaxStreams)) return;
  s.require(a.width % y.width == 0, "{} streams in {} elements", y.width, a.width);
  s.shape("a", a, ValueType::F32, a.width, a.rows);
  s.shape("b", s.in(1), ValueType::F32, a.width, a.rows);
  s.shape("y", y, ValueType::F32, y.width, a.rows);
  s.require(!y.overlaps(a) && !y.overlaps(s.in(1)), "y is a or b");
}

void check_attend_streams(OpCheck& s) {
  const OpOperand& x = s.in(0);
  s.require(s.attrs<AttendStreamsAttrs>().eps >= 0, "eps is {}", s.attrs<AttendStreamsAttrs>().eps);
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    if (!s.require(s.in(i).present(), "a stream is missing before others")) return;
    s.shape(i == 0 ? "x" : "an earlier stream", s.in(i), ValueType::F32, s.out(0).width, x.rows);
  }
  s.shape("y", s.out(0), ValueType::F32, s.out(0).width, x.rows);
  s.require(!s.out(0).overlaps(x), "y is x");
  s.vector("score", s.weight(0), s.out(0).width);
}

}  // namespace ktx::op_checks

// Hyper-connections, lowered: the residual stream is several rows side by side. A part of a layer
// reads a sum of them, and what it gives goes to all (StreamWeightsAttrs):
//
//   n = rms_norm(x)   w = stream_weights(matmul(n))   in = collapse_streams(x, w)
//   ... the part, from its norm on ...                x = mix_streams(x, out, w)
//
// With gates instead of such weights, and no norm in the part (StreamsInfo):
//
//   n = rms_norm(x)   g = sigmoid(up(silu(down(n))))   in = the mean of g * n over the streams
//   ... the part ...                                   x = mix_streams(x, out, 2 *
//   sigmoid(give(n)))
//
// Attention residuals: x ends before each block of layers and stays; the next one begins with what
// attention gives. Parts read all of them (AttendStreamsAttrs):
//
//   in = attend_streams(x, ended streams)   ... the part, from its norm on ...   x = x + out
#include <fmt/format.h>

#include "lib/passes/lower/lowering.h"

namespace ktx::passes {

using ir::Module;
using ir::Role;
using program::BlobId;
using program::kAbsent;
using program::View;

// At first all streams are the embedding, or projections of it.
Status Lowering::spread_streams(const Module& model) {
  const Module* head = modules_.child(model, Role::HeadStreams);
  const Module* projections = modules_.child(model, Role::AltUpEmbedProj);
  const Module* sources = modules_.child(model, Role::HeadSources);
  if (!head && !projections && !sources) return {};
  if (!taps_.empty()) {
    return Error{
        "drafters that read hidden states of a model with several residual streams are not supported"};
  }
  if (sources) return {};
  if (projections) return project_streams(*projections);
  const ir::StreamsInfo* s = KTX_TRY(info_of<ir::StreamsInfo>(*head));
  const View one = x_;
  x_ = value("streams", s->streams * s->hidden);
  for (int64_t i = 0; i < s->streams; ++i) {
    emit(*KTX_TRY(child(model, Role::Embedding)), StepOp::Scale, {one},
         {{x_.value, i * s->hidden, s->hidden}}, {}, ScaleAttrs{1});
  }
  return {};
}

// What the module reads of the streams `x`. Its weights stay for mix_streams().
Result<View> Lowering::collapse_streams(const Module& streams, View x, const char* value_name) {
  const ir::StreamsInfo* s = KTX_TRY(info_of<ir::StreamsInfo>(streams));
  if (s->mean) return mean_of_streams(streams, *s, x, value_name);
  if (s->rank > 0) return gated_mean(streams, *s, x, value_name);
  const StreamWeightsAttrs attrs = s->attrs();
  const std::string base = value_name;
  const RowKind rows = program_.values[static_cast<size_t>(x.value)].rows;
  const View normed = value(base + "_streams", x.width, ValueType::F32, rows);
  KTX_TRY(norm(*KTX_TRY(child(streams, Role::StreamsNorm)), x, normed));
  stream_weights_ = value(base + "_weights", attrs.width(), ValueType::F32, rows);
  const BlobId fn = KTX_TRY(blob(streams, "fn"));
  emit(streams, StepOp::Matmul, {normed, View{}}, {stream_weights_}, {fn, kAbsent}, MatmulAttrs{});
  const BlobId scale = KTX_TRY(blob(streams, "scale")), bias = KTX_TRY(blob(streams, "base"));
  emit(streams, StepOp::StreamWeights, {stream_weights_}, {stream_weights_}, {scale, bias}, attrs);
  const View out = value(base, s->hidden, ValueType::F32, rows);
  emit(streams, StepOp::CollapseStreams, {x, {stream_weights_.value, 0, s->streams}}, {out}, {},
       NoAttrs{});
  return out;
}

Result<View> Lowering::gated_mean(const Module& streams, const ir::StreamsInfo& s, View x,
                                  const char* value_name) {
  const std::string base = value_name;
  const RowKind rows = program_.values[static_cast<size_t>(x.value)].rows;
  const float share = 1 / static_cast<float>(s.streams);
  const View normed = value(base + "_streams", x.width, ValueType::F32, rows);
  KTX_TRY(norm(*KTX_TRY(child(streams, Role::StreamsNorm)), x, normed));
  if (const Module* give = modules_.child(streams, Role::StreamsGiveProj)) {
    stream_weights_ = value(base + "_weights", s.streams, ValueType::F32, rows);
    KTX_TRY(matmul(*give, normed, stream_weights_));
    const std::string& device = streams.decision.device;
    const BlobId scale = constant(fmt::format("share.{}@{}", s.streams, device), {share}, device);
    const BlobId none = constant(fmt::format("zeros.{}@{}", s.streams, device),
                                 std::vector<float>(static_cast<size_t>(s.streams)), device);
    emit(streams, StepOp::StreamWeights, {stream_weights_}, {stream_weights_}, {scale, none},
         StreamWeightsAttrs{s.streams});
    scale_by(streams, stream_weights_, 2);
  }
  const View low = value(base + "_low", s.rank, ValueType::F32, rows);
  KTX_TRY(matmul(*KTX_TRY(child(streams, Role::StreamsDownProj)), normed, low));
  scale_by(streams, low, share);
  emit(streams, StepOp::Activate, {low}, {low}, {},
       ActivateAttrs{static_cast<int32_t>(UnitFunction::Silu)});
  const View gates = value(base + "_gates", x.width, ValueType::F32, rows);
  KTX_TRY(matmul(*KTX_TRY(child(streams, Role::StreamsUpProj)), low, gates));
  emit(streams, StepOp::Glu, {gates, normed}, {gates}, {},
       GluAttrs{static_cast<int32_t>(Activation::Sigmoid)});
  return mean_of_streams(streams, s, gates, value_name);
}

// Each sum is a value of its own: one that a step adds to would be a residual stream.
View Lowering::mean_of_streams(const Module& streams, const ir::StreamsInfo& s, View x,
                               const char* value_name) {
  const RowKind rows = program_.values[static_cast<size_t>(x.value)].rows;
  View sum{x.value, 0, s.hidden};
  for (int64_t i = 1; i < s.streams; ++i) {
    const View next = value(fmt::format("{}_sum{}", value_name, i), s.hidden, ValueType::F32, rows);
    emit(streams, StepOp::Add, {sum, {x.value, i * s.hidden, s.hidden}}, {next}, {}, NoAttrs{});
    sum = next;
  }
  const View out = value(value_name, s.hidden, ValueType::F32, rows);
  emit(streams, StepOp::Scale, {sum}, {out}, {}, ScaleAttrs{1 / static_cast<float>(s.streams)});
  return out;
}

void Lowering::mix_streams(const Module& streams, View part) {
  const int64_t count = x_.width / part.width;
  const int64_t first = stream_weights_.width == count ? 0 : count;  // behind those of the sum
  emit(streams, StepOp::MixStreams,
       {x_, part, {stream_weights_.value, first, stream_weights_.width - first}}, {x_}, {},
       NoAttrs{});
}

// What the module reads of the stream and of those that ended; the stream itself where none has.
Result<View> Lowering::attend_streams(const Module& sources, View x, std::span<const View> earlier,
                                      const char* value_name) {
  if (earlier.empty()) return x;
  const ir::SourcesInfo* s = KTX_TRY(info_of<ir::SourcesInfo>(sources));
  const View out = value(value_name, s->hidden, ValueType::F32,
                         program_.values[static_cast<size_t>(x.value)].rows);
  std::vector<View> all = {x};
  all.insert(all.end(), earlier.begin(), earlier.end());
  const BlobId score = KTX_TRY(blob(sources, "score"));
  emit(sources, StepOp::AttendStreams, std::move(all), {out}, {score}, AttendStreamsAttrs{s->eps});
  return out;
}

// The same of the wanted rows alone.
Result<View> Lowering::attend_outputs(const Module& sources, const Module& reader,
                                      const std::string& device) {
  std::vector<View> rows;
  const auto gather = [&](View x) {
    rows.push_back(
        value(fmt::format("last_rows{}", rows.size()), x.width, ValueType::F32, RowKind::Output));
    emit_on(device, reader, StepOp::GatherRows, {x}, {rows.back()}, {}, NoAttrs{});
  };
  gather(x_);
  for (const View& stream : earlier_) gather(stream);
  return attend_streams(sources, rows[0], std::span(rows).subspan(1), "last");
}

}  // namespace ktx::passes

// Benchmarks of attention, and of MLA in its two forms.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/cuda/mla/cuda_latent.h"
#include "tests/bench/cuda/bench_cache.h"

namespace ktx::bench {

using namespace kernels;

namespace {

void attention(const char* what, AttentionAttrs attrs, KvType type, int64_t sequences,
               int64_t tokens_each, int64_t length) {
  CudaAttentionArgs args;
  args.attrs = attrs;
  args.attrs.scale = 0.1f;
  const Cache cache(
      {type, 64, attrs.kv_heads, attrs.key_dim, attrs.value_in_key ? 0 : attrs.value_dim},
      sequences, tokens_each, length);
  args.tokens = sequences * tokens_each;
  const Memory q(args.tokens * attrs.heads * attrs.key_dim * 4),
      y(args.tokens * attrs.heads * attrs.value_dim * 4);
  args.kv = cache.at(0);
  args.q = q.as<float>();
  args.q_stride = attrs.heads * attrs.key_dim;
  args.y = y.as<float>();
  args.y_stride = attrs.heads * attrs.value_dim;
  args.max_positions = length;
  args.one_token_per_sequence = tokens_each == 1;
  args.workspace_bytes = cuda_attention_workspace(args);
  const Memory workspace(args.workspace_bytes + 1);
  args.workspace = workspace.as<std::byte>();
  const double seconds = seconds_of(16, [&](int i, cudaStream_t s) {
    args.kv = cache.at(i);
    check(launch_attention(args, s));
  });
  report(std::string(what) + " sequences " + std::to_string(sequences) + " tokens " +
             std::to_string(tokens_each) + " length " + std::to_string(length),
         seconds, static_cast<double>(cache.bytes()),
         2.0 * args.tokens * attrs.heads * (attrs.key_dim + attrs.value_dim) *
             (length - tokens_each / 2.0));
}

// One token with rope and store (and head norms) in the launch, as a decoded token has it.
void prepared(const char* what, AttentionAttrs attrs, KvType type, bool norms, int64_t length) {
  CudaAttentionArgs args;
  args.attrs = attrs;
  args.attrs.scale = 0.1f;
  const Cache cache({type, 64, attrs.kv_heads, attrs.key_dim, attrs.value_dim}, 1, 1, length);
  const int64_t width = attrs.heads * attrs.key_dim;
  const Memory q(width * 4), k(width * 4), v(width * 4), y(width * 4), norm(1024), turns(1024);
  args.tokens = 1;
  args.q = q.as<float>();
  args.q_stride = args.y_stride = width;
  args.y = y.as<float>();
  args.max_positions = 1024;  // as the graphs of a run bound it
  while (args.max_positions < length) args.max_positions *= 4;
  args.one_token_per_sequence = true;
  args.prepare = {k.as<float>(), width, v.as<float>(),     width, nullptr, nullptr,
                  1e-6f,         1e-6f, turns.as<float>(), {}};
  if (norms) args.prepare.q_norm = args.prepare.k_norm = norm.as<float>();
  RopeAttrs& rope = args.prepare.rope;
  rope.head_dim = rope.y_head_dim = rope.rotary_dim = attrs.key_dim;
  rope.mscale = 1;
  args.kv = cache.at(0);
  args.workspace_bytes = cuda_attention_workspace(args);
  const Memory workspace(args.workspace_bytes + 1);
  args.workspace = workspace.as<std::byte>();
  const double seconds = seconds_of(64, [&](int i, cudaStream_t s) {
    args.kv = cache.at(i);
    check(launch_attention(args, s));
  });
  report(std::string(what) + " with rope and store, length " + std::to_string(length), seconds,
         static_cast<double>(cache.bytes()));
}

AttentionAttrs gqa(int32_t heads, int32_t kv_heads, int32_t dim) {
  AttentionAttrs a;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.key_dim = a.value_dim = dim;
  return a;
}

// MLA of DeepSeek's shape for `tokens` of one sequence behind `past`, absorbed (two products and
// attention between them) and expanded.
class LatentForms {
 public:
  LatentForms(int32_t heads, int64_t tokens, int64_t past)
      : key_(DType::Q8_0, 512, 128, heads),
        value_(DType::Q4_K, 128, 512, heads),
        cache_({KvType::F16, 64, 1, 576, 0}, 1, tokens, past + tokens),
        q_(tokens * heads * 192 * 4),
        q_latent_(tokens * heads * 576 * 4),
        sums_(tokens * heads * 512 * 4),
        y_(tokens * heads * 128 * 4),
        halves_(tokens * heads * latent_query_halves(128) * 2) {
    absorb_.w = key_.at(0);
    absorb_.attrs = {heads, 0, 0, 512, 192, 576};
    absorb_.x = q_.as<float>();
    absorb_.x_stride = heads * 192;
    absorb_.y = q_latent_.as<float>();
    absorb_.y_stride = heads * 576;
    values_.w = value_.at(0);
    values_.attrs = {heads, 0, 0, 128, 512, 128};
    values_.x = sums_.as<float>();
    values_.x_stride = heads * 512;
    values_.y = y_.as<float>();
    values_.y_stride = heads * 128;
    absorb_.tokens = values_.tokens = attention_.tokens = expanded_.tokens = tokens;
    attention_.attrs = mla(heads);
    attention_.attrs.scale = 0.1f;
    attention_.q = q_latent_.as<float>();
    attention_.q_stride = heads * 576;
    attention_.y = sums_.as<float>();
    attention_.y_stride = heads * 512;
    attention_.max_positions = expanded_.positions = past + tokens;
    attention_.kv = expanded_.kv = cache_.at(0);
    queries_ = {absorb_.x,   heads * 192, 192,    attention_.q + 512,
                heads * 576, 576,         tokens, heads,
                128,         64,          0.1f,   halves_.as<uint16_t>()};
    expanded_.queries = queries_.queries;
    expanded_.y = values_.y;
    expanded_.y_stride = values_.y_stride;
    expanded_.key = absorb_.w;
    expanded_.key_heads = absorb_.attrs;
    expanded_.value = values_.w;
    expanded_.value_heads = values_.attrs;
    expanded_.heads = heads;
    expanded_.head_dim = 128;
    expanded_.latent_dim = 512;
    expanded_.rope_dim = 64;
    const int64_t expanded =
        latent_expanded_takes(expanded_) ? latent_expanded_workspace(expanded_) : 0;
    bytes_ = std::max(cuda_attention_workspace(attention_), expanded);
    workspace_ = std::make_unique<Memory>(bytes_ + 1);
    attention_.workspace = expanded_.workspace = workspace_->as<std::byte>();
    attention_.workspace_bytes = expanded_.workspace_bytes = bytes_;
  }
  double absorbed() {
    return seconds_of(4, [&](int i, cudaStream_t s) {
      attention_.kv = cache_.at(i);
      check(launch_matmul_heads(absorb_, s));
      check(launch_attention(attention_, s));
      check(launch_matmul_heads(values_, s));
    });
  }
  double expanded() {
    if (!latent_expanded_takes(expanded_)) return NAN;
    return seconds_of(4, [&](int i, cudaStream_t s) {
      expanded_.kv = cache_.at(i);
      check(launch_latent_queries(queries_, s));
      check(launch_latent_expanded(expanded_, s));
    });
  }

 private:
  Rotating key_, value_;
  Cache cache_;
  Memory q_, q_latent_, sums_, y_, halves_;
  CudaMatmulHeadsArgs absorb_, values_;
  CudaAttentionArgs attention_;
  CudaLatentQueriesArgs queries_;
  CudaLatentArgs expanded_;
  int64_t bytes_ = 0;
  std::unique_ptr<Memory> workspace_;
};

void latent(int32_t heads, int64_t tokens, int64_t past) {
  LatentForms forms(heads, tokens, past);
  const double absorbed = forms.absorbed(), expanded = forms.expanded();
  const double seen = tokens * (past + tokens / 2.0) * heads;
  const double operations = seen * 640 + 262144.0 * (past + tokens) * heads;
  std::printf(
      "MLA %3d heads, %4lld tokens behind %5lld: absorbed %8.1f us, expanded %8.1f us (%.0f "
      "TFLOP/s), "
      "absorbed / expanded %.2f\n",
      heads, static_cast<long long>(tokens), static_cast<long long>(past), absorbed * 1e6,
      expanded * 1e6, operations / expanded / 1e12, absorbed / expanded);
  std::fflush(stdout);
}

}  // namespace

void bench_attention() {
  attention("8B F16", gqa(32, 8, 128), KvType::F16, 1, 1, 512);
  attention("8B F16", gqa(32, 8, 128), KvType::F16, 1, 1, 8192);
  attention("8B Q8_0", gqa(32, 8, 128), KvType::Q8_0, 1, 1, 8192);
  attention("8B F16", gqa(32, 8, 128), KvType::F16, 16, 1, 2048);
  for (int64_t tokens : {17, 64, 256, 512, 2048}) {
    attention("8B F16", gqa(32, 8, 128), KvType::F16, 1, tokens, tokens);
  }
  for (int64_t tokens : {17, 64, 256, 1024, 2048}) {
    attention("8B F16", gqa(32, 8, 128), KvType::F16, 1, tokens, 32000 + tokens);
  }
  attention("8B F16", gqa(32, 8, 128), KvType::F16, 1, 8192, 8192);
  attention("8B F16", gqa(32, 8, 128), KvType::F16, 8, 256, 256);
  attention("8B F16", gqa(32, 8, 128), KvType::F16, 32, 1, 4096);
  attention("8B Q8_0", gqa(32, 8, 128), KvType::Q8_0, 1, 2048, 2048);
  attention("8B Q8_0", gqa(32, 8, 128), KvType::Q8_0, 1, 1024, 33024);
  attention("30B F16", gqa(32, 4, 128), KvType::F16, 1, 2048, 34048);
  attention("heads of 64 F16", gqa(64, 8, 64), KvType::F16, 1, 2048, 10240);
  attention("heads of 80 F16", gqa(32, 8, 80), KvType::F16, 1, 2048, 10240);
  attention("heads of 96 F16", gqa(32, 8, 96), KvType::F16, 1, 2048, 10240);
  attention("heads of 256 F16", gqa(16, 2, 256), KvType::F16, 1, 2048, 10240);
  attention("heads of 256 Q8_0", gqa(16, 2, 256), KvType::Q8_0, 1, 2048, 10240);
  attention("30B F16", gqa(32, 4, 128), KvType::F16, 1, 1, 512);
  for (int64_t length : {64, 200, 512, 1000, 2048, 4096, 8192, 16384, 32000, 131072}) {
    prepared("8B F16", gqa(32, 8, 128), KvType::F16, false, length);
    prepared("8B Q8_0", gqa(32, 8, 128), KvType::Q8_0, false, length);
    prepared("30B F16", gqa(32, 4, 128), KvType::F16, true, length);
  }
  attention("MLA 128 heads F16", mla(128), KvType::F16, 1, 1, 4096);
  attention("MLA 16 heads F16", mla(16), KvType::F16, 1, 1, 4096);
  attention("MLA 16 heads F16", mla(16), KvType::F16, 1, 512, 512);
  attention("MLA 128 heads F16", mla(128), KvType::F16, 16, 1, 4096);
  attention("MLA 16 heads Q8_0", mla(16), KvType::Q8_0, 1, 1, 4096);
}

void bench_latent() {
  for (int32_t heads : {16, 128}) {
    for (int64_t past : {0, 2048, 8192}) latent(heads, 512, past);
    for (int64_t past : {0, 2048, 8192}) {
      for (int64_t tokens : {32, 64, 128, 256}) latent(heads, tokens, past);
    }
  }
  latent(128, 2048, 0);
}

}  // namespace ktx::bench

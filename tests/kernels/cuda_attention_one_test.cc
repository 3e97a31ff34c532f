// Attention of generated tokens in one launch (attention_decode.cu) against the scalar ops one by
// one.
#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/rows/cuda_rows.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "tests/kernels/cuda_caches.h"

namespace ktx::kernels {
namespace {

using CudaAttentionOne = CudaTest;

struct Case {
  const char* what;
  int32_t heads, kv_heads, dim;
  KvType type;
  bool norms, interleaved;
  int32_t window = 0, chunked = 0;
  float softcap = 0;
  bool sinks = false;
  int32_t rotary_dim = 0;  // 0: dim
};
const Case kCases[] = {
    {"Llama", 32, 8, 128, KvType::F16, false, false},
    {"groups of eight with norms", 32, 4, 128, KvType::F16, true, false},
    {"groups of eight, Q8_0", 16, 2, 128, KvType::Q8_0, true, true},
    {"seven heads a group", 14, 2, 64, KvType::F16, false, false},
    {"no groups, Q8_0", 4, 4, 64, KvType::Q8_0, false, false},
    {"pairs side by side", 6, 2, 64, KvType::F16, true, true},
    {"window and sinks", 16, 2, 64, KvType::F16, false, false, 128, 0, 0, true},
    {"window over blocks", 8, 2, 128, KvType::Q8_0, true, false, 900},
    {"chunks", 4, 2, 64, KvType::F16, false, false, 100, 1},
    {"softcap", 4, 4, 128, KvType::F16, false, false, 0, 0, 3},
    {"wide heads with norms", 16, 2, 256, KvType::F16, true, false},
    {"wide heads in part rotated", 8, 4, 256, KvType::F16, true, false, 0, 0, 0, false, 64},
    {"wide heads, window", 4, 1, 256, KvType::F16, true, false, 512},
    {"wide heads, Q8_0", 10, 2, 256, KvType::Q8_0, false, false},
    {"wide heads, pairs side by side", 3, 1, 256, KvType::Q8_0, true, true},
};

// A step of `news` tokens of each sequence: its inputs, on the host and on the GPU.
class Step {
 public:
  Step(Random& random, const Case& c, const std::vector<int32_t>& lengths, int32_t news = 1)
      : case_(c),
        cache_(random, {c.type, 64, c.kv_heads, c.dim, c.dim}, lengths, news),
        tokens_(cache_.tokens()),
        q_(random.normals(tokens_ * q_width())),
        key_(random.normals(tokens_ * kv_width())),
        value_(random.normals(tokens_ * kv_width())),
        q_norm_(random.normals(c.dim)),
        k_norm_(random.normals(c.dim)),
        gpu_cache_(cache_),
        gpu_q_(q_),
        gpu_key_(key_),
        gpu_value_(value_),
        gpu_q_norm_(q_norm_),
        gpu_k_norm_(k_norm_),
        gpu_y_(q_.size()) {
    for (int32_t i = 0; i < c.dim / 2; ++i) {
      inv_freq_.push_back(
          std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(c.dim)));
    }
    gpu_inv_freq_ = std::make_unique<Gpu<float>>(inv_freq_);
    rope_.head_dim = rope_.y_head_dim = c.dim;
    rope_.rotary_dim = c.rotary_dim > 0 ? c.rotary_dim : c.dim;
    rope_.interleaved = c.interleaved;
    rope_.mscale = 1.25f;
    attrs_ = {
        0,        c.heads,   c.kv_heads, c.dim, c.dim, 0, 1 / std::sqrt(static_cast<float>(c.dim)),
        c.window, c.chunked, c.softcap};
    for (int32_t h = 0; h < c.heads; ++h) sinks_.push_back(static_cast<float>(h % 5) - 2);
    gpu_sinks_ = std::make_unique<Gpu<float>>(sinks_);
  }
  int64_t q_width() const { return case_.heads * case_.dim; }
  int64_t kv_width() const { return case_.kv_heads * case_.dim; }

  // By the scalar ops; the new rows go into the host's cache.
  std::vector<float> oracle() {
    std::vector<float> q = q_, key = key_, y(q_.size());
    prepare(q, case_.heads, q_norm_);
    prepare(key, case_.kv_heads, k_norm_);
    KvStoreArgs store;
    store.key = key.data();
    store.key_stride = kv_width();
    store.value = value_.data();
    store.value_stride = kv_width();
    store.kv = cache_.view();
    store.token_end = tokens_;
    (*find_kv_store("kv_store", Isa::Scalar))(store);
    AttentionArgs attention;
    attention.q = q.data();
    attention.y = y.data();
    attention.q_stride = attention.y_stride = q_width();
    attention.attrs = attrs_;
    if (case_.sinks) attention.sinks = sinks_.data();
    attention.kv = cache_.view();
    attention.token_end = tokens_;
    attention.head_end = case_.heads;
    AlignedBytes scratch(attention_scratch_bytes(attrs_));
    attention.scratch = scratch.data();
    (*find_attention("attention", Isa::Scalar))(attention);
    return y;
  }
  CudaAttentionArgs args(int64_t max_positions) {
    CudaAttentionArgs a;
    a.q = gpu_q_.data();
    a.y = gpu_y_.data();
    a.q_stride = a.y_stride = q_width();
    a.tokens = tokens_;
    a.attrs = attrs_;
    if (case_.sinks) a.sinks = gpu_sinks_->data();
    a.kv = gpu_cache_.view;
    a.max_positions = max_positions;
    a.one_token_per_sequence = tokens_ == static_cast<int64_t>(cache_.tables.size());
    a.prepare = {gpu_key_.data(),
                 kv_width(),
                 gpu_value_.data(),
                 kv_width(),
                 case_.norms ? gpu_q_norm_.data() : nullptr,
                 case_.norms ? gpu_k_norm_.data() : nullptr,
                 1e-6f,
                 1e-6f,
                 gpu_inv_freq_->data(),
                 rope_};
    return a;
  }
  std::vector<float> result() const { return gpu_y_.read(); }
  // The largest difference of two elements of the caches, to the largest element; infinite where
  // bytes differ that no token of the step stores.
  double cache_error() const {
    const std::vector<std::byte> got = gpu_cache_.pool.read();
    std::vector<bool> stored(got.size());
    double error = 0, largest = 0;
    const KvLayout& layout = cache_.layout;
    for (size_t t = 0; t < static_cast<size_t>(tokens_); ++t) {
      const int32_t position = cache_.position[t], in_block = position % 64;
      const auto entry = cache_.sequence[t] * cache_.stride + position / 64;
      const int64_t slot =
          cache_.table[static_cast<size_t>(entry)] * cache_.block_bytes + cache_.slot_offset;
      for (int32_t h = 0; h < case_.kv_heads; ++h) {
        for (int64_t offset : {layout.key_offset(h, in_block), layout.value_offset(h, in_block)}) {
          for (int32_t i = 0; i < case_.dim; ++i) {
            const double want = element(cache_.pool.data() + slot + offset, i);
            error = std::max(error, std::abs(want - element(got.data() + slot + offset, i)));
            largest = std::max(largest, std::abs(want));
          }
          std::fill_n(stored.begin() + slot + offset, layout.key_row_bytes(), true);
        }
      }
    }
    for (size_t i = 0; i < got.size(); ++i) {
      if (!stored[i] && got[i] != cache_.pool[i]) return INFINITY;
    }
    return error / largest;
  }

 private:
  void prepare(std::vector<float>& x, int32_t heads, const std::vector<float>& weight) const {
    if (case_.norms) {
      RmsNormArgs norm;
      norm.x = norm.y = x.data();
      norm.x_stride = norm.y_stride = norm.width = heads * case_.dim;
      norm.weight = weight.data();
      norm.attrs = {1e-6f, heads};
      norm.token_end = tokens_;
      (*find_rms_norm("rms_norm", Isa::Scalar))(norm);
    }
    std::vector<float> scratch(static_cast<size_t>(case_.dim));
    RopeArgs rope;
    rope.x = rope.y = x.data();
    rope.x_stride = rope.y_stride = heads * case_.dim;
    rope.inv_freq = inv_freq_.data();
    rope.position = cache_.position.data();
    rope.attrs = rope_;
    rope.attrs.heads = heads;
    rope.token_end = tokens_;
    rope.scratch = scratch.data();
    (*find_rope("rope", Isa::Scalar))(rope);
  }
  double element(const std::byte* row, int32_t i) const {
    const auto half_at = [](const std::byte* p) {
      uint16_t bits;
      std::memcpy(&bits, p, 2);
      return double{half_to_float(bits)};
    };
    if (case_.type == KvType::F16) return half_at(row + 2 * i);
    const std::byte* block = row + i / 32 * 34;
    return half_at(block) * static_cast<int8_t>(block[2 + i % 32]);
  }

  Case case_;
  CacheStep cache_;
  int64_t tokens_;
  std::vector<float> q_, key_, value_, q_norm_, k_norm_, inv_freq_;
  GpuCache gpu_cache_;
  Gpu<float> gpu_q_, gpu_key_, gpu_value_, gpu_q_norm_, gpu_k_norm_, gpu_y_;
  std::unique_ptr<Gpu<float>> gpu_inv_freq_, gpu_sinks_;
  std::vector<float> sinks_;
  RopeAttrs rope_;
  AttentionAttrs attrs_;
};

void check(Random& random, const Case& c, const std::vector<int32_t>& lengths,
           int64_t max_positions, int32_t news = 1) {
  SCOPED_TRACE(testing::Message() << c.what << " first length " << lengths[0] << " of "
                                  << lengths.size() << ", " << news << " new, seed "
                                  << random.seed());
  Step step(random, c, lengths, news);
  CudaAttentionArgs args = step.args(max_positions);
  ASSERT_TRUE(attention_prepares(args));
  GpuWorkspace workspace(args, cuda_attention_workspace(args));
  ASSERT_TRUE(ran(launch_attention(args, nullptr)));
  const std::vector<float> got = step.result();
  EXPECT_LT(relative_error(got, step.oracle()), 1e-3);
  // Sine, cosine and norms may round otherwise: by one code of Q8_0, or in the last bit of F16.
  EXPECT_LT(step.cache_error(), c.type == KvType::F16 ? 1e-3 : 1e-2);
  for (int again = 0; again < 3; ++again) {
    ASSERT_TRUE(ran(launch_attention(args, nullptr)));
    ASSERT_TRUE(same_bits(step.result(), got)) << "run " << again;
  }
}

// Around the ends of a warp's piece, a block's span, the cluster's round; and in later rounds.
TEST_F(CudaAttentionOne, AgreesWithTheScalarOps) {
  Random random(96);
  for (const Case& c : kCases) {
    for (int32_t length : {1, 2, 15, 16, 17, 64, 65, 128, 255, 256, 257, 300, 513, 900, 1024}) {
      check(random, c, {length}, 1024);
    }
    for (int32_t length : {1, 400, 1025, 1153, 2500}) check(random, c, {length}, 4096);
  }
}

// The last position alone in its piece, block or round, and the last but one of these.
TEST_F(CudaAttentionOne, DeepPastsAgreeWithTheScalarOps) {
  Random random(95);
  const Case cases[] = {
      {"groups of four", 4, 1, 128, KvType::F16, false, true},
      {"groups of eight with norms", 8, 1, 128, KvType::F16, true, false},
      {"groups of ten", 10, 1, 64, KvType::F16, false, false},
      {"Q8_0", 4, 1, 128, KvType::Q8_0, true, false},
      {"wide heads", 16, 2, 256, KvType::F16, true, false, 0, 0, 0, false, 64},
      {"wide heads, Q8_0", 4, 1, 256, KvType::Q8_0, true, false},
  };
  for (const Case& c : cases) {
    for (int32_t length : {2048, 2049, 3840, 3841, 4080, 4095, 4096}) {
      check(random, c, {length}, 4096);
    }
    for (int32_t length : {4096, 4097, 4112, 4113, 8191, 8192}) check(random, c, {length}, 8192);
    for (int32_t length : {8193, 12288, 12289, 16384}) check(random, c, {length}, 16384);
    check(random, c, {20001}, 32768);
  }
  check(random, cases[1], {5000, 1, 16384, 257}, 16384);
}

// Blocks that have a text for themselves look up their pieces anew, 32 rounds at a time.
TEST_F(CudaAttentionOne, ManySequencesWalkFar) {
  Random random(94);
  const Case c = {"many KV heads", 16, 8, 64, KvType::F16, false, false};
  std::vector<int32_t> lengths(17, 1);
  lengths[0] = 8700, lengths[9] = 8192;
  check(random, c, lengths, 16384);
}

// New keys in one piece, in two of a block and of neighbouring blocks, and without any before them.
TEST_F(CudaAttentionOne, FewTokensOfASequenceSeeEachOther) {
  Random random(93);
  for (const Case& c : kCases) {
    for (int32_t news : {2, 4, 5, 16}) {
      for (int32_t length : {16, 17, 64, 66, 129, 130, 257, 515, 1024}) {
        check(random, c, {length}, 1024, news);
      }
    }
    for (int32_t length : {130, 1040, 2499}) check(random, c, {length}, 4096, 4);
    check(random, c, {70, 5, 1026, 129}, 4096, 3);
  }
}

TEST_F(CudaAttentionOne, SequencesSeeTheirOwnPositions) {
  Random random(97);
  for (const Case& c : kCases) check(random, c, {70, 1, 1030, 129}, 4096);
}

TEST_F(CudaAttentionOne, PaddingIsNeitherStoredNorRead) {
  Random random(98);
  const Case& c = kCases[0];
  Step step(random, c, {140});
  CudaAttentionArgs args = step.args(1024);
  Gpu<int32_t> position(std::vector<int32_t>{-1});
  args.kv.position = position.data();
  GpuWorkspace workspace(args, cuda_attention_workspace(args));
  ASSERT_TRUE(ran(launch_attention(args, nullptr)));
  for (float v : step.result()) ASSERT_EQ(v, 0);
}

// What is read before the kernel ahead has ended is nothing that it writes: q, keys and values
// made by kernels right before give the bits of launches one by one, in graphs of many.
TEST_F(CudaAttentionOne, GraphsGiveTheBitsOfLaunchesOneByOne) {
  Random random(99);
  for (const Case& c : kCases) {
    Step step(random, c, {200});
    CudaAttentionArgs args = step.args(1024);
    GpuWorkspace workspace(args, cuda_attention_workspace(args));
    const std::vector<float> ones(static_cast<size_t>(step.q_width()), 1.0f);
    Gpu<float> weight(ones), made(ones.size());
    // q is the norm of what attention gave before, so each launch needs the one ahead.
    const auto round = [&](cudaStream_t stream, bool wait) {
      CudaRmsNormArgs norm;
      norm.x = args.y;
      norm.y = made.data();
      norm.weight = weight.data();
      norm.x_stride = norm.y_stride = norm.width = step.q_width();
      norm.tokens = 1;
      norm.attrs = {1e-6f, 1};
      ASSERT_TRUE(launch_rms_norm(norm, stream).ok());
      if (wait) cudaStreamSynchronize(stream);
      CudaAttentionArgs next = args;
      next.q = made.data();
      ASSERT_TRUE(launch_attention(next, stream).ok());
      if (wait) cudaStreamSynchronize(stream);
    };
    const auto start = [&] { ASSERT_TRUE(ran(launch_attention(args, nullptr))); };
    start();
    for (int i = 0; i < 8; ++i) round(nullptr, true);
    const std::vector<float> want = step.result();
    cudaStream_t stream;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    for (int i = 0; i < 8; ++i) round(stream, false);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int i = 0; i < 5; ++i) {
      start();
      ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      ASSERT_TRUE(same_bits(step.result(), want)) << c.what << " run " << i;
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

}  // namespace
}  // namespace ktx::kernels

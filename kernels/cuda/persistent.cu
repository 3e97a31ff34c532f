// The phases of a persistent kernel from the arguments of the launchers, and the shares of its
// blocks.
#include "kernels/cuda/cuda_persistent.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/one_token_products.h"
#include "kernels/cuda/persistent_phases.h"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {

template <DType kFirst, DType kSecond>
Status launch_persistent(const PersistentArgs& args, int blocks, cudaStream_t stream);
int attention_phase_bytes_of(const AttentionAttrs& attrs, int splits);

namespace {

struct Mix {
  DType first, second;
  Status (*launch)(const PersistentArgs&, int, cudaStream_t);
};
constexpr Mix kMixes[] = {
#define KTX_MARLIN_PAIR(first, second) \
  {DType::first, DType::second, launch_persistent<DType::first, DType::second>},
#include "kernels/cuda/marlin_pairs.def"
#undef KTX_MARLIN_PAIR
};
constexpr int kMostUnits = kPersistentThreads / 16;
constexpr int kMostStrips = 64;  // of a block in a phase
constexpr int kMostPhases = 1024;

int64_t aligned(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

int units_of(const OneProduct& p, const OneRows& rows) {
  return rows.strips() * (p.work == OneWork::Choices ? p.router.attrs.top_k : 1);
}
int sources_of(const OneProduct& p, const OneRows& rows) {
  return p.work == OneWork::Sum ? p.router.attrs.top_k : rows.w[1] ? 2 : 1;
}

// Blocks of each part: by their bytes, those left over where a block has most to read.
void share_blocks(const OneProduct& p, int blocks, int (&own)[kOneParts]) {
  const auto bytes_of = [&](const OneRows& rows) {
    return int64_t{units_of(p, rows)} * rows.strip_bytes;
  };
  int64_t bytes = 0;
  for (int i = 0; i < p.parts; ++i) bytes += bytes_of(p.rows[i]);
  int left = blocks;
  for (int i = 0; i < p.parts; ++i) {
    own[i] = std::max(1, static_cast<int>(blocks * bytes_of(p.rows[i]) / bytes));
    left -= own[i];
  }
  // Parts below one block's share have one all the same.
  for (; left < 0; ++left) --*std::max_element(own, own + p.parts);
  for (; left > 0; --left) {
    int most = 0;
    int64_t load = -1;
    for (int i = 0; i < p.parts; ++i) {
      const int64_t of = ceil_div(units_of(p, p.rows[i]), own[i]) * p.rows[i].strip_bytes;
      if (of > load) load = of, most = i;
    }
    ++own[most];
  }
}

// Whether two phases of attention read the same positions of their caches.
bool alike(const CudaAttentionArgs& a, const CudaAttentionArgs& b) {
  const auto view = [](const CudaKvView& kv) {
    return std::tuple(kv.layout.type, kv.layout.block_tokens, kv.layout.kv_heads, kv.table,
                      kv.table_stride, kv.sequence, kv.position);
  };
  return view(a.kv) == view(b.kv) && a.attrs.kv_heads == b.attrs.kv_heads;
}

}  // namespace

struct CudaPersistent::Plan {
  int blocks = multiprocessors();
  std::optional<DType> first, second;  // formats so far
  std::vector<PhaseRecord> records;
  std::vector<OneProduct> products;  // by share
  std::vector<AttentionAttrs> attentions;
  std::optional<CudaAttentionArgs> first_attention;

  const Mix* mix() const;
  bool takes(DType dtype);
  bool takes(const OneProduct& p);
  bool fits(const OneProduct& p);  // may leave formats that it asked for
  template <class T>
  void put(PhaseKind kind, const T& phase, int share = 0) {
    PhaseRecord& record = records.emplace_back();
    record.kind = kind;
    record.share = share;
    std::memcpy(record.data, &phase, sizeof(phase));
  }
  void put(const OneProduct& p) {
    put(PhaseKind::Products, p, static_cast<int>(products.size()));
    products.push_back(p);
  }
  BlockShare share(int product, int block) const;
  PersistentArgs args(std::byte* device) const;

  // In device memory: the count of blocks, of those that ended attention, its parts, records,
  // shares.
  int64_t parts_begin() const { return 256 + aligned(blocks * 4); }
  int64_t splits(const AttentionAttrs& a) const { return std::max(1, blocks / a.kv_heads); }
  int64_t value_bytes() const {
    int64_t most = 0;
    for (const AttentionAttrs& a : attentions)
      most = std::max(most, a.heads * splits(a) * a.value_dim * 4);
    return aligned(most);
  }
  int64_t sum_bytes() const {
    int64_t most = 0;
    for (const AttentionAttrs& a : attentions) most = std::max(most, a.heads * splits(a) * 8);
    return aligned(most);
  }
  int64_t records_begin() const { return parts_begin() + value_bytes() + sum_bytes(); }
  int64_t shares_begin() const {
    return records_begin() + aligned(std::ssize(records) * PhaseRecord::kBytes);
  }
};

const Mix* CudaPersistent::Plan::mix() const {
  for (const Mix& mix : kMixes) {
    const auto has = [&](DType t) { return t == mix.first || t == mix.second; };
    if ((!first || has(*first)) && (!second || has(*second))) return &mix;
  }
  return nullptr;
}

bool CudaPersistent::Plan::takes(DType dtype) {
  if (dtype == first || dtype == second) return true;
  std::optional<DType>& place = first ? second : first;
  if (place) return false;
  place = dtype;
  if (mix()) return true;
  place.reset();
  return false;
}

bool CudaPersistent::Plan::takes(const OneProduct& p) {
  const auto formats = std::pair(first, second);
  if (fits(p)) return true;
  std::tie(first, second) = formats;
  return false;
}

bool CudaPersistent::Plan::fits(const OneProduct& p) {
  if (p.cols % 256 != 0 || p.count != 1 || std::ssize(records) >= kMostPhases) return false;
  int own[kOneParts];
  share_blocks(p, blocks, own);
  for (int i = 0; i < p.parts; ++i) {
    const OneRows& rows = p.rows[i];
    const int units = ceil_div(units_of(p, rows), own[i]);
    if (units > kMostUnits || units * sources_of(p, rows) > kMostStrips) return false;
    if (!takes(rows.dtype)) return false;
  }
  products.push_back(p);
  const bool enough = args(nullptr).ring_bytes > 0;
  products.pop_back();
  return enough;
}

BlockShare CudaPersistent::Plan::share(int product, int block) const {
  const OneProduct& p = products[product];
  int own[kOneParts];
  share_blocks(p, blocks, own);
  // Blocks with a strip more than others are not the same ones in every phase.
  int number = (block + 37 * product) % blocks;
  int part = 0;
  while (part + 1 < p.parts && number >= own[part]) number -= own[part++];
  const OneRows& rows = p.rows[part];
  BlockShare s;
  if (number < own[part]) {
    const int64_t units = units_of(p, rows);
    s.first = static_cast<int32_t>(units * number / own[part]);
    s.units = static_cast<int16_t>(units * (number + 1) / own[part] - s.first);
  }
  for (int i = 0; i < 2; ++i) {
    if (rows.w[i]) s.w[i] = rows.w[i] + int64_t{rows.strip_begin()} * rows.strip_bytes;
  }
  s.matrix_bytes = rows.matrix_bytes;
  s.strip_bytes = static_cast<int32_t>(rows.strip_bytes);
  s.matrix_strips = rows.strips();
  s.sources = static_cast<int16_t>(sources_of(p, rows));
  s.tiles = static_cast<int16_t>(p.cols / 256);
  s.part = static_cast<uint8_t>(part);
  s.format = rows.dtype == mix()->first ? 0 : 1;
  s.work = p.work;
  int next = product + 1;
  while (next < std::ssize(products) && products[next].work != OneWork::Choices) ++next;
  s.next_choices = static_cast<int16_t>(next);
  return s;
}

// ring_bytes 0: shared memory is too small.
PersistentArgs CudaPersistent::Plan::args(std::byte* device) const {
  PersistentArgs a;
  a.arrived = reinterpret_cast<uint32_t*>(device);
  a.phases = reinterpret_cast<const PhaseRecord*>(device + records_begin());
  a.shares = reinterpret_cast<const BlockShare*>(device + shares_begin());
  a.count = static_cast<int>(records.size());
  a.products = static_cast<int>(products.size());
  while (a.first_choices < a.products && products[a.first_choices].work != OneWork::Choices) {
    ++a.first_choices;
  }
  for (int i = a.count - 1; i >= 0; --i) {
    if (records[i].kind == PhaseKind::Attention) a.attention = i;
  }
  int choice_bytes = 0, attention_bytes = 0;
  for (const OneProduct& p : products) {
    const int rows = p.work == OneWork::Sum ? p.router.attrs.top_k : 1;
    a.x_bytes = std::max(a.x_bytes, one_x_bytes(rows * (p.cols / 256)));
    int own[kOneParts];
    share_blocks(p, blocks, own);
    for (int i = 0; i < p.parts; ++i) {
      const int strips = ceil_div(units_of(p, p.rows[i]), own[i]) * sources_of(p, p.rows[i]);
      a.sum_bytes = std::max(a.sum_bytes, strips * kPersistentWarps * 16 * 4);
    }
    if (p.work == OneWork::Choices) {
      const RouterAttrs& r = p.router.attrs;
      choice_bytes = std::max(choice_bytes, (2 * r.experts + r.groups) * 4);
    }
  }
  for (const AttentionAttrs& attrs : attentions) {
    attention_bytes =
        std::max(attention_bytes, attention_phase_bytes_of(attrs, static_cast<int>(splits(attrs))));
  }
  const auto round = [](int bytes) { return (bytes + 127) / 128 * 128; };
  a.scratch_bytes = round(std::max(a.x_bytes + a.sum_bytes + choice_bytes, attention_bytes));
  const int shares = round(a.products * static_cast<int>(sizeof(BlockShare)));
  const int left = shared_memory_limit() - 8 * 1024 - shares - a.scratch_bytes;
  const int ring = left / kPersistentWarps / 128 * 128;
  constexpr int kLeastRing = 2 * 3360;  // a chunk of the largest format
  a.ring_bytes = ring >= kLeastRing ? ring : 0;
  a.bytes = shares + a.scratch_bytes + kPersistentWarps * a.ring_bytes;
  return a;
}

CudaPersistent::CudaPersistent() : plan_(std::make_unique<Plan>()) {}
CudaPersistent::~CudaPersistent() = default;
CudaPersistent::CudaPersistent(CudaPersistent&&) noexcept = default;
CudaPersistent& CudaPersistent::operator=(CudaPersistent&&) noexcept = default;

bool CudaPersistent::runs() {
  return compute_capability() >= 90 && device_attribute(cudaDevAttrCooperativeLaunch) != 0;
}

bool CudaPersistent::add(const CudaOneProductsArgs& args) {
  const OneProduct p = one_product(args);
  if (!plan_->takes(p)) return false;
  plan_->put(p);
  return true;
}
bool CudaPersistent::add(const CudaOneGateUpArgs& args) {
  const OneProduct p = one_product(args);
  if (!plan_->takes(p)) return false;
  plan_->put(p);
  return true;
}
bool CudaPersistent::add(const CudaOneChoicesArgs& choices, const CudaOneSumArgs& sum) {
  const OneProduct first = one_product(choices), second = one_product(sum);
  if (sum.ids != choices.router.ids || !plan_->takes(first)) return false;
  plan_->put(first);
  if (plan_->takes(second)) {
    plan_->put(second);
    return true;
  }
  plan_->records.pop_back();
  plan_->products.pop_back();
  return false;
}
bool CudaPersistent::add(const CudaOneRouterArgs& args) {
  RouterPhase phase;
  phase.w = reinterpret_cast<const float*>(args.w.data);
  phase.rows = static_cast<int>(args.w.rows);
  phase.cols = static_cast<int>(args.w.cols);
  phase.x = args.x.x;
  phase.norm = args.x.norm;
  phase.eps = args.x.eps;
  phase.normed = args.normed;
  phase.logits = args.logits;
  plan_->put(PhaseKind::Router, phase);
  return true;
}
bool CudaPersistent::add(const CudaAttentionArgs& args) {
  const AttentionAttrs& a = args.attrs;
  const bool fits = a.heads / a.kv_heads <= 16 && a.kv_heads <= plan_->blocks &&
                    (a.value_dim == 64 || a.value_dim == 128) && a.key_dim <= 256 &&
                    args.prepare.key;
  if (!fits || (plan_->first_attention && !alike(*plan_->first_attention, args))) return false;
  plan_->attentions.push_back(a);
  if (plan_->args(nullptr).ring_bytes == 0) {
    plan_->attentions.pop_back();
    return false;
  }
  plan_->first_attention = args;
  AttentionPhase phase;
  phase.args = args;
  phase.splits = static_cast<int>(plan_->splits(a));
  plan_->put(PhaseKind::Attention, phase);
  return true;
}

int CudaPersistent::phases() const {
  return static_cast<int>(plan_->records.size());
}

int64_t CudaPersistent::device_bytes() const {
  return plan_->shares_begin() +
         aligned(std::ssize(plan_->products) * plan_->blocks * int64_t{sizeof(BlockShare)});
}

std::vector<std::byte> CudaPersistent::image(std::byte* device) const {
  const Plan& plan = *plan_;
  std::vector<std::byte> bytes(static_cast<size_t>(device_bytes()));
  std::byte* records = bytes.data() + plan.records_begin();
  for (PhaseRecord record : plan.records) {
    if (record.kind == PhaseKind::Attention) {
      AttentionPhase phase;
      std::memcpy(&phase, record.data, sizeof(phase));
      phase.ended = reinterpret_cast<uint32_t*>(device + 256);
      phase.values = reinterpret_cast<float*>(device + plan.parts_begin());
      phase.sums = reinterpret_cast<float*>(device + plan.parts_begin() + plan.value_bytes());
      std::memcpy(record.data, &phase, sizeof(phase));
    }
    std::memcpy(records, &record, sizeof(record));
    records += sizeof(record);
  }
  auto* shares = bytes.data() + plan.shares_begin();
  for (int block = 0; block < plan.blocks; ++block) {
    for (int i = 0; i < std::ssize(plan.products); ++i) {
      const BlockShare share = plan.share(i, block);
      std::memcpy(shares, &share, sizeof(share));
      shares += sizeof(share);
    }
  }
  return bytes;
}

Status CudaPersistent::launch(std::byte* device, CudaStream stream) const {
  return plan_->mix()->launch(plan_->args(device), plan_->blocks, stream);
}

}  // namespace ktx::kernels

// Runs the plans that open. The fuzzer's bytes are changes to a small plan whose hashes are
// then corrected: a plan that the reader accepts must run, whatever it computes.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_plan_run
//   mkdir -p found && build-fuzz/tests/fuzz/fuzz_plan_run found -max_len=65 -len_control=0
//
// The first byte chooses the plan (F32, Q8_0 or Q4_0 weights), the precision and the
// instruction set. Every 8 bytes behind it are one change: section (1), width and kind (1:
// 1, 2, 4 or 8 bytes; set, add or subtract), place in the section (2, in units of 4 bytes),
// value (4). A plan that asks for more than 64 MiB is opened and not run.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "lib/plan/device_memory.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/session/session.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace {

using namespace ktx;

constexpr uint64_t kMaxBytes = 64 << 20;
constexpr int64_t kCtx = 32;

std::vector<std::byte> seed(DType dtype) {
  const runtime::TinyPlan tiny(dtype);
  return plan::read_bytes(tiny.path());
}

struct Change {
  uint8_t section;
  uint8_t how;
  uint16_t place;
  uint32_t value;
};
static_assert(sizeof(Change) == 8);

void apply(const Change& change, const std::vector<plan::SectionEntry>& table,
           std::vector<std::byte>& bytes) {
  const plan::SectionEntry& section = table[change.section % table.size()];
  const size_t width = size_t{1} << (change.how & 3);
  if (section.size < width) return;
  const uint64_t at = section.offset + change.place * uint64_t{4} % (section.size - width + 1);
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, width);
  const int kind = change.how >> 2 & 3;
  if (kind <= 1) value = change.value;
  if (kind == 2) value += change.value % 4;
  if (kind == 3) value -= change.value % 4;
  std::memcpy(bytes.data() + at, &value, width);
}

bool is_small(const plan::PlanView& view) {
  plan::RunShape shape;
  shape.ctx = kCtx;
  shape.max_batch = 1;
  const auto estimate = plan::estimate_memory(view, shape);
  return estimate.ok() && estimate->total_bytes <= kMaxBytes;
}

void run(const std::string& path, const runtime::EngineOptions& options) {
  auto engine = runtime::Engine::open(path, options);
  if (!engine) return;
  auto sampler = runtime::Sampler::create({}, (*engine)->vocab_size());
  if (!sampler) return;
  runtime::Session session(**engine, sampler.take());
  // Three steps of a prompt, then single tokens.
  const int32_t last = static_cast<int32_t>((*engine)->vocab_size()) - 1;
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 9; ++i) prompt.push_back(std::min(i, last));
  const auto ready = session.set_prompt(prompt);
  if (!ready || *ready != runtime::Outcome::Ok) return;
  for (int i = 0; i < 3; ++i) {
    const auto next = session.next();
    if (!next || next->outcome != runtime::Outcome::Ok) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::byte> seeds[] = {seed(DType::F32), seed(DType::Q8_0),
                                                 seed(DType::Q4_0)};
  static plan::MemoryFile file;
  if (size == 0) return 0;
  std::vector<std::byte> bytes = seeds[data[0] % 3];
  const auto sections = plan::sections(bytes);
  // As it was: a change may damage the table that the next one would go by.
  const std::vector<plan::SectionEntry> table(sections.begin(), sections.end());
  for (size_t at = 1; at + sizeof(Change) <= size; at += sizeof(Change)) {
    Change change;
    std::memcpy(&change, data + at, sizeof change);
    apply(change, table, bytes);
  }
  plan::fix_hashes(bytes);
  file.set(bytes);
  {
    const auto opened = plan::PlanFile::open(file.path());
    if (!opened.ok() || !is_small(opened->view())) return 0;
  }
  runtime::EngineOptions options;
  options.threads = 1;
  options.pin = runtime::Pin::Off;
  options.ctx = kCtx;
  options.max_batch = 1;
  options.chunk_tokens = 4;
  options.precision = data[0] & 64 ? runtime::Precision::Exact : runtime::Precision::Fast;
  if (data[0] & 128) options.isa = Isa::Scalar;
  run(file.path(), options);
  return 0;
}

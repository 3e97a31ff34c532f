// Opens a plan: maps it, checks all of it but the weights, and gives views.
//
//   PlanFile plan = KTX_TRY(PlanFile::open("m.ktxplan"));
//   for (const program::Step& step : plan->program->steps) {
//     for (const program::View& in : step.inputs) ...
//     for (program::BlobId blob : step.weights) ... plan->blob_bytes(blob) ...
//   }
//
// Safe for untrusted files. open() checks the prefix, the version, every section's
// place and hash, and then (a hash is no proof of good will) every index, range,
// count and attribute of every record, and the shapes of all operands and weights
// of every step (check_step_records.h). What it accepts can be used without further
// checks. Tables are copied into memory before they are checked, so that a file
// that changes later cannot undo the checks; weights, tokenizer, module graph and
// GGUF header stay in the mapping.
//
// Immutable after open, so safe to share between threads; views live as long as
// the PlanFile, also when it is moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/ops/step_attrs.h"
#include "lib/plan/plan_facts.h"
#include "lib/plan/plan_format.h"
#include "lib/program/program.h"
#include "lib/support/mapped_file.h"
#include "lib/support/result.h"

namespace ktx::program {
struct Stream;
}  // namespace ktx::program

namespace ktx::plan {

struct PlanView {
  uint16_t minor = 0;  // format version of the file
  uint64_t file_bytes = 0;
  bool has_drafter = false;  // a plan within, for PlanOpenOptions::drafter
  bool has_tower = false;    // likewise, for PlanOpenOptions::tower
  // Covers every section's hash but the self-test's and the digests': the same plan with and
  // without a self-test.
  Hash128 identity;
  std::span<const std::byte> header;  // prefix and section table
  std::span<const SectionEntry> sections;

  size_t host = 0;  // of target.hosts, as which it is read (plan_hosts.h)
  // The host that the file has the weights of, where it has not all (host_part.h).
  std::optional<size_t> part_of;

  PlanFacts facts;
  PlanTarget target;
  PlanProvenance provenance;
  PlanChatTemplate chat_template;

  // What the records say (lib/program/program.h), and its streamed parts (lib/program/streams.h).
  // Set in the view of a PlanFile; null in others.
  const program::Program* program = nullptr;
  std::span<const program::Stream> streams;

  // Records, for lib/plan.
  std::span<const SegmentRecord> segments;
  std::span<const BlobRecord> blobs;
  std::span<const SliceRecord> slices;
  std::span<const ValueRecord> values;
  std::span<const BufferRecord> buffers;
  std::span<const OperandRecord> operands;
  std::span<const uint32_t> weight_uses;
  std::span<const std::byte> attrs;  // 64-byte aligned
  std::span<const StepRecord> steps;
  std::span<const KvSlotRecord> kv_slots;
  std::span<const PartRecord> parts;
  std::span<const LaunchRecord> launches;
  std::span<const uint32_t> launch_steps;
  std::span<const ChunkRecord> chunks;
  std::span<const DigestRecord> digests;   // empty before format 3.7
  std::span<const int32_t> draft_tokens;   // facts.draft_vocab: the model's token of each logit
  std::span<const Hash128> source_hashes;  // by blob; empty before format 3.7

  std::span<const GgufShardRecord> gguf_shards;
  std::span<const GgufTensorRecord> gguf_tensors;
  std::span<const std::byte> gguf_section;  // what header_offset counts from
  std::string_view module_graph;
  std::span<const std::byte> tokenizer;  // for text::parse_tokenizer_data

  std::span<const StringEntry> string_entries;
  std::string_view string_text;
  std::span<const std::byte> file;  // the mapping

  std::string_view string(uint32_t index) const {
    const StringEntry& entry = string_entries[index];
    return string_text.substr(entry.offset, entry.size);
  }
  // "" for kNone: kernel names of a step that has nothing to do.
  std::string_view string_or_empty(uint32_t index) const {
    return index == kNone ? std::string_view() : string(index);
  }
  std::span<const std::byte> blob_bytes(uint32_t blob) const {
    return file.subspan(blobs[blob].offset, blobs[blob].size);
  }
  std::span<const OperandRecord> inputs(const StepRecord& step) const {
    return operands.subspan(step.first_input, step.input_count);
  }
  std::span<const OperandRecord> outputs(const StepRecord& step) const {
    return operands.subspan(step.first_output, step.output_count);
  }
  std::span<const uint32_t> weights(const StepRecord& step) const {  // blob or kNone
    return weight_uses.subspan(step.first_weight, step.weight_count);
  }
  // The attribute struct that step_ops.def names for step.op.
  template <class Attrs>
  Attrs attrs_of(const StepRecord& step) const {
    return attrs_from_bytes<Attrs>(attrs_bytes(step));
  }
  std::span<const std::byte> attrs_bytes(const StepRecord& step) const {
    return attrs.subspan(step.attrs_offset, step.attrs_size);
  }
};

struct PlanOpenOptions {
  bool verify_weights = false;  // read and check every weight too
  bool verify_digests = false;  // SHA-256 of all but the weights (digests.h); fails without them
  bool huge_pages = false;      // a copy of the file in huge pages instead of its mapping
  int threads = 0;              // for these; 0: all cores
  bool drafter = false;         // the plan that this one has as its drafter
  bool tower = false;           // the plan that reads images for this one
  size_t host = 0;              // as which it is read; fails where there are fewer
  bool own_weights = false;     // that host's weights are needed: fails on another one's part
};

class PlanFile {
 public:
  static Result<PlanFile> open(const std::string& path, const PlanOpenOptions& options = {});
  PlanFile(PlanFile&&) noexcept;
  PlanFile& operator=(PlanFile&&) noexcept;
  ~PlanFile();

  const PlanView& view() const;
  const PlanView* operator->() const { return &view(); }
  const std::string& path() const;
  const MappedFile& mapping() const;
  // An error once the file became smaller under the mapping; ask after use.
  Status check() const;

 private:
  struct State;
  explicit PlanFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ktx::plan

// The contents of a plan, which a compiler fills in, and the layout of the resulting file.
//
//   PlanContents contents;
//   contents.facts.family = "LlamaForCausalLM";
//   uint32_t name = contents.strings.intern("model.norm.weight");
//   const SliceRecord slice = {.tensor = 2, .row_count = 1};
//   contents.add_blob({.name = name, .rows = 1, .cols = 4096, .matrices = 1}, {&slice, 1});
//   ...
//   contents.close_segment("cpu", SegmentKind::Weights);   // all blobs since the last call
//   PlanLayout layout = KTX_TRY(lay_out(contents));        // offsets and the size of the file
//
// Records are those of plan_format.h. lay_out() and the writer fill in offsets in the file
// (SegmentRecord::offset and size, BlobRecord::offset), BlobRecord::size of Layout::Rows and all
// hashes; leave them zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/formats/layout.h"
#include "lib/ops/step_attrs.h"
#include "lib/plan/plan_facts.h"
#include "lib/plan/plan_format.h"
#include "lib/support/result.h"

namespace ktx::plan {

// Strings by number, each once.
class StringTable {
 public:
  uint32_t intern(std::string_view text);
  std::string_view operator[](uint32_t index) const { return texts_[index]; }
  size_t size() const { return texts_.size(); }
  std::string serialize() const;  // the Strings section

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string, uint32_t> index_;
};

// The source GGUF: each shard's bytes before its data, and all tensors.
struct GgufContents {
  struct Shard {
    std::string header;      // padding included
    uint64_t file_size = 0;  // of the source, at most its last tensor's end padded to alignment
    uint64_t alignment = 32;
  };
  std::vector<Shard> shards;
  std::vector<GgufTensorRecord> tensors;  // names in PlanContents::strings
};

struct PlanContents {
  StringTable strings;
  PlanTarget target;
  PlanFacts facts;
  PlanProvenance provenance;
  PlanChatTemplate chat_template;
  GgufContents gguf;
  std::string module_graph;  // text
  std::string tokenizer;     // text::serialize()
  std::string self_test;     // to_json(SelfTest) (self_test.h); empty: none

  std::vector<SegmentRecord> segments;
  std::vector<BlobRecord> blobs;
  std::vector<SliceRecord> slices;
  std::vector<ValueRecord> values;
  std::vector<BufferRecord> buffers;
  std::vector<OperandRecord> operands;
  std::vector<uint32_t> weight_uses;
  std::vector<std::byte> attrs;
  std::vector<StepRecord> steps;
  std::vector<KvSlotRecord> kv_slots;
  std::vector<PartRecord> parts;
  std::vector<LaunchRecord> launches;
  std::vector<uint32_t> launch_steps;
  std::vector<int32_t> draft_tokens;                     // PlanFacts::draft_vocab of them
  std::vector<Hash128> source_hashes;                    // by blob; pack_blobs() fills them in
  std::map<uint32_t, std::vector<std::byte>> constants;  // by blob: bytes of those without slices
  // By blob: to what its rows are rounded (lib/formats/requantized_form.h). Not in the file.
  std::map<uint32_t, std::string> requantized;
  // The blobs whose rows have adapters added to them (lib/lora/merge.h). Not in the file.
  std::set<uint32_t> merged;
  // A whole plan that drafts tokens for this one; empty: none. Its memory is the caller's, until
  // the writer has finished.
  std::span<const std::byte> drafter = {};
  std::span<const std::byte> tower = {};  // one that reads images for this one, likewise

  // Appends a blob with its slices, in order of blob rows (SliceRecord::blob and
  // blob_row are filled in); returns its index. `size` may stay zero for Layout::Rows.
  uint32_t add_blob(BlobRecord blob, std::span<const SliceRecord> slices);
  uint32_t add_constant(uint32_t name, std::span<const float> values);  // one row, F32
  // Makes a segment of the blobs added since the last call; nothing if there are none.
  void close_segment(std::string_view device, SegmentKind kind);
  // Appends operands; returns the first one's index.
  uint32_t add_operands(std::span<const OperandRecord> list);
  uint32_t add_weight_uses(std::span<const uint32_t> blobs);
  // Appends an attribute struct; returns its offset for StepRecord::attrs_offset.
  uint32_t add_attrs(const StepAttrs& attrs);
};

// One hash chunk of a weight segment, the unit of packing work.
struct ChunkRange {
  uint32_t segment;
  uint64_t offset;  // in the file
  uint64_t size;
};

struct PlanLayout {
  uint64_t file_bytes = 0;
  std::vector<SectionEntry> sections;           // in file order; hashes still zero
  std::vector<ChunkRange> chunks;               // segment by segment
  std::map<SectionId, uint64_t> inner_offsets;  // in the file, of plans within this one
  uint64_t self_test_offset = 0;                // in the file
};

// The text of the section as it is stored; nothing of Chunks, WeightData and plans within.
std::string section_bytes(const PlanContents& contents, SectionId id);
// The plan within, by its section; empty: there is none.
std::span<const std::byte> inner_plan(const PlanContents& contents, SectionId id);

// Fills in sizes and offsets of blobs and segments and gives the file's layout.
// Pure: the same contents give the same layout. Fails when contents contradict
// themselves (our bug or a lying source: the message says which blob).
Result<PlanLayout> lay_out(PlanContents& contents);

}  // namespace ktx::plan

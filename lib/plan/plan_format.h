// The bytes of a .ktxplan file: plain little-endian structs, offsets only.
//
//   Prefix (64 bytes, never changes) | SectionEntry[section_count] | sections
//
// The header (prefix and section table) is hashed into Prefix::header_hash with
// that field zero. Every section starts at a multiple of 64 bytes, a weight
// segment at 4 KiB (2 MiB when it is larger than 64 MiB), and a blob at 64 bytes
// from the start of its segment. Bytes between are zero. New fields go at the
// end of a struct with a new minor version; a changed meaning is a new major
// version. docs/plan-format.md shows a file byte by byte. Structs only here: the
// reader checks every range before use.
#pragma once

#include <cstdint>

#include "lib/ops/step_ops.h"
#include "lib/support/hash.h"
#include "lib/support/sha256.h"

namespace ktx::plan {

inline constexpr char kMagic[8] = {'K', 'T', 'X', 'P', 'L', 'A', 'N', '\x1a'};
inline constexpr uint16_t kMajor = 3;
inline constexpr uint16_t kMinor = 9;
inline constexpr uint64_t kSectionAlignment = 64;
inline constexpr uint64_t kSegmentAlignment = 4096;
inline constexpr uint64_t kLargeSegmentAlignment = 2 << 20;
inline constexpr uint64_t kLargeSegmentBytes = 64 << 20;
inline constexpr uint64_t kBlobAlignment = 64;
inline constexpr uint64_t kHashChunkBytes = 64 << 20;
inline constexpr uint64_t kBlobPieceBytes = 4 << 20;
inline constexpr uint32_t kNone = 0xFFFFFFFF;  // "no index" in any index field

struct Prefix {
  char magic[8];
  uint16_t major;
  uint16_t minor;
  uint32_t header_bytes;  // prefix and section table
  uint64_t file_bytes;
  uint32_t section_count;
  uint32_t min_reader_minor;  // a reader of this major needs at least this minor
  Hash128 header_hash;
  uint8_t reserved[16];
};
static_assert(sizeof(Prefix) == 64);

enum SectionFlags : uint32_t { kRequired = 1 };

struct SectionEntry {
  uint32_t id;     // enum SectionId
  uint32_t flags;  // enum SectionFlags
  uint64_t offset;
  uint64_t size;
  Hash128 hash;  // of the section's bytes; zero for weights (see Chunks) and a plan within
  uint64_t reserved;
};
static_assert(sizeof(SectionEntry) == 48);

enum class SectionId : uint32_t {
#define KTX_SECTION(id, number, name, element, sentence) id = number,
#include "lib/plan/sections.def"
#undef KTX_SECTION
};

// A whole plan within this one.
constexpr bool is_inner_plan(SectionId id) {
  return id == SectionId::Drafter || id == SectionId::Tower;
}

// Sections behind the small ones, which are not read when a plan is opened.
constexpr bool is_large(SectionId id) {
  return id == SectionId::WeightData || is_inner_plan(id) || id == SectionId::SelfTest;
}

// Whether every file has this small section.
constexpr bool is_in_every_file(SectionId id) {
  return id != SectionId::DraftTokens && id != SectionId::SourceHashes && id != SectionId::Digests;
}

// A reader that does not know the others refuses a plan that has them.
constexpr bool is_required(SectionId id) {
  return id != SectionId::SelfTest && id != SectionId::SourceHashes && id != SectionId::Digests;
}

// The bytes of string i are Strings[offset, offset + size) of the text part. The
// section is: uint32 count, uint32 0, StringEntry[count], text.
struct StringEntry {
  uint32_t offset;
  uint32_t size;
};
static_assert(sizeof(StringEntry) == 8);

// A contiguous part of the file with the weights of one device. Its blobs stand
// in order of first use.
enum class SegmentKind : uint32_t { Weights = 0, Carried = 1 };
struct SegmentRecord {
  uint32_t device;  // string: "cpu", "cuda:0", "b/cpu"; "none" for carried tensors
  uint32_t kind;    // enum SegmentKind; carried: kept for --export-gguf, never read by a step
  uint64_t offset;  // in the file
  uint64_t size;
  uint32_t first_blob;
  uint32_t blob_count;
};
static_assert(sizeof(SegmentRecord) == 32);

// A packing unit: `matrices` matrices of rows x cols weights in one layout, from
// the source slices [first_slice, first_slice + slice_count). No slices: a
// constant that the compiler made (rotary frequencies), F32.
//
// hash is a content address, whatever the blob's place in the file: XXH3-128 of
// its bytes when they are at most kBlobPieceBytes, else XXH3-128 of the XXH3-128
// (low half, high half) of its pieces of that size, so that pieces can be hashed
// side by side.
struct BlobRecord {
  uint32_t name;  // string
  uint16_t dtype;
  uint16_t layout;
  uint64_t offset;  // in the file
  uint64_t size;
  int64_t rows;
  int64_t cols;
  int64_t matrices;
  uint32_t first_slice;
  uint32_t slice_count;
  Hash128 hash;
};
static_assert(sizeof(BlobRecord) == 72);

// A range of rows of a GGUF tensor, which are rows [blob_row, ...) of its blob,
// all matrices' rows counted through; a row is the blob's (cols weights), so that
// a vector may also be taken as rows of one element. Slices of all blobs of a
// device cover each tensor at most once, those of all devices each tensor; those of one
// blob stand in order of blob_row, without gaps.
//
// A row of the blob may be the n-th part of one of the tensor's, where the weight is divided over n
// GPUs by columns: rows are then counted in such parts, n to one of the tensor, and the slice's are
// n apart (row_step).
struct SliceRecord {
  uint32_t tensor;  // index in the GGUF's tensor list, shards counted through
  uint32_t blob;
  int64_t first_row;
  int64_t row_count;
  int64_t blob_row;
};
static_assert(sizeof(SliceRecord) == 32);

// An activation: rows of `width` elements. Row kinds: one row per token, one per
// wanted logits row, or one in all. `rows_per_row` rows of `width` each make one
// such row (heads or experts of a token; else 1): one row takes
// rows_per_row * width elements, Q8 and BF16 rows_per_row * value_row_bytes(type, width)
// bytes (lib/ops/value_row.h).
struct ValueRecord {
  uint32_t name;
  uint8_t type;  // enum ktx::ValueType
  uint8_t rows;  // enum ktx::RowKind
  uint16_t reserved;
  uint32_t rows_per_row;
  uint32_t buffer;
  int64_t width;
};
static_assert(sizeof(ValueRecord) == 24);

// A piece of the arena: its size is fixed + per_token * T + per_output * R
// bytes for at most T tokens and R output rows in a step, rounded up to 64.
// Values whose lifetimes do not meet share a buffer.
struct BufferRecord {
  uint64_t fixed_bytes;
  uint64_t bytes_per_token;
  uint64_t bytes_per_output;
};
static_assert(sizeof(BufferRecord) == 24);

// Elements [offset, offset + width) of each whole row of a value; kNone: absent.
struct OperandRecord {
  uint32_t value;
  uint32_t offset;
  uint32_t width;
};
static_assert(sizeof(OperandRecord) == 12);

// kernel[p]: the kernel family (string) for precision p (0 exact, 1 fast); kNone: nothing to do.
// On a GPU the launches say more.
struct StepRecord {
  uint32_t op;                          // enum StepOp
  uint32_t module;                      // string: the path of the module it came from
  int32_t layer;                        // -1 outside the layers
  uint32_t device;                      // string
  uint32_t first_input, input_count;    // in Operands
  uint32_t first_output, output_count;  // in Operands
  uint32_t first_weight, weight_count;  // in WeightUses: uint32 blob index or kNone
  uint32_t attrs_offset, attrs_size;    // in Attrs, 4-byte aligned
  uint32_t kernel[2];
};
static_assert(sizeof(StepRecord) == 56);

// A stretch of steps that the host hands to one device (lib/program/launch.h). The last step
// may be in none: the transfer of a GPU's logits.
struct PartRecord {
  // enum program::Part::Kind: 0 on a CPU, 1 on a GPU, 2 from GPU to GPU, 3 between hosts
  uint32_t kind;
  uint32_t device;  // string
  uint32_t from;    // string: the sender of kinds 2 and 3, else kNone
  uint32_t first_step;
  uint32_t step_count;
};
static_assert(sizeof(PartRecord) == 20);

// A kernel over steps of a part on a GPU, and when it is chosen (lib/program/launch.h). Of
// several for the same steps and tokens the first whose conditions hold.
struct LaunchRecord {
  uint32_t fused_op;    // enum FusedOp, kNone: a single step
  uint32_t kernel;      // string: a row of kernels/gpu/gpu_kernels.def
  uint32_t first_step;  // in LaunchSteps
  uint32_t step_count;
  uint32_t least_tokens;       // rows of a single step's values, tokens of the pass else
  uint32_t most_tokens;        // 0xFFFFFFFF: any number
  uint16_t least_sm, most_sm;  // compute capability times ten; 0xFFFF: any newer
  uint32_t needs;              // bits: 1 cuBLAS, 2 wgmma, 4 keys and values in F16 or Q8_0
  uint32_t least_run;          // tokens of a sequence; fewer go step by step; 0: all alike
};
static_assert(sizeof(LaunchRecord) == 36);

// One cache of keys and values. A token takes kv_heads * key_dim elements of key
// and kv_heads * value_dim of value; value_dim = 0: values live in the key. window > 0: a token at
// position p reads nothing before p - window + 1, so that older blocks can go; 0: all positions.
struct KvSlotRecord {
  int32_t layer;
  int32_t kv_heads;
  int32_t key_dim;
  int32_t value_dim;
  uint32_t device;
  int32_t window;  // KvSlot::window, and KvSlot::named from bit kSlotKindShift on
};
static_assert(sizeof(KvSlotRecord) == 24);
inline constexpr int kSlotKindShift = 27;
inline constexpr int32_t kSlotWindowMask = (1 << kSlotKindShift) - 1;

// The GgufHeader section: uint32 shard count, uint32 tensor count,
// GgufShardRecord[], GgufTensorRecord[] (shards counted through, in file order),
// then the headers. A shard's header is everything before its data section,
// padding included, as it stood in the source; its file ends at file_size.
struct GgufShardRecord {
  uint64_t header_offset;  // in this section
  uint64_t header_size;
  uint64_t file_size;
  uint64_t alignment;
};
static_assert(sizeof(GgufShardRecord) == 32);

// A tensor of the source: `rows` rows (ne1 * ne2 * ne3) of row_elems (ne0) elements.
struct GgufTensorRecord {
  uint32_t name;  // string
  uint16_t dtype;
  uint16_t reserved;
  uint32_t shard;
  uint32_t reserved2;
  int64_t row_elems;
  int64_t rows;
  uint64_t offset;  // in the shard's file
  uint64_t size;
};
static_assert(sizeof(GgufTensorRecord) == 48);

// XXH3-128 of each kHashChunkBytes of the file's weight segments: chunk c of
// segment s covers [offset + c * kHashChunkBytes, ...) of that segment.
struct ChunkRecord {
  uint32_t segment;
  uint32_t chunk;
  Hash128 hash;
};
static_assert(sizeof(ChunkRecord) == 24);

// SHA-256 of each kHashChunkBytes of each section but this one, in the order of the section table
// (digests.h). From 3.7 on.
using DigestRecord = Digest256;
static_assert(sizeof(DigestRecord) == 32);

}  // namespace ktx::plan

// docs/plan-format.md against the code: the version, the sections and the sizes of their records,
// and the plan that it shows byte by byte, which is the tiny plan of these tests.
//
//   KTX_UPDATE_GOLDEN=1 build-release/tests/test_unit_plan --gtest_filter='PlanFormatDoc.*'
//
// writes that part of the document anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/step_ops.h"
#include "lib/plan/digests.h"
#include "lib/plan/plan_reader.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ktx::testing::read_file;
using ktx::testing::TempDir;

const std::string kDocument = source_dir() + "/docs/plan-format.md";

// "4b 54 58 50 4c 41 4e 1a  03 00 …" of up to 16 bytes.
std::string hex_columns(std::span<const std::byte> bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += i == 8 ? "  " : " ";
    out += fmt::format("{:02x}", static_cast<unsigned>(bytes[i]));
  }
  return out;
}

// The lines of a document that show parts of a file, with a remark behind each line of 16 bytes.
class Dump {
 public:
  explicit Dump(std::span<const std::byte> file) : file_(file) {}
  void show(uint64_t at, uint64_t size, const std::vector<std::string>& remarks) {
    if (at != end_) text_ += "              …\n";
    end_ = at + size;
    for (size_t line = 0; line * 16 < size; ++line) {
      const auto bytes = file_.subspan(at + line * 16, std::min<size_t>(16, size - line * 16));
      text_ += fmt::format("    {:08x}  {:<48}   {}\n", at + line * 16, hex_columns(bytes),
                           line < remarks.size() ? remarks[line] : "");
    }
  }
  void say(uint64_t at, const std::string& remark) {
    text_ += fmt::format("    {:08x}  {}\n", at, remark);
  }
  const std::string& text() const { return text_; }

 private:
  std::span<const std::byte> file_;
  std::string text_;
  uint64_t end_ = 0;
};

uint64_t offset_of(const PlanView& view, SectionId id) {
  for (const SectionEntry& section : view.sections) {
    if (section.id == static_cast<uint32_t>(id)) return section.offset;
  }
  ADD_FAILURE() << "no section " << static_cast<uint32_t>(id);
  return 0;
}

constexpr const char* kSectionNames[] = {
#define KTX_SECTION(id, number, name, element, sentence) name,
#include "lib/plan/sections.def"
#undef KTX_SECTION
};

std::string dump_of(const PlanFile& plan, std::span<const std::byte> file) {
  Dump dump(file);
  const PlanView& view = plan.view();
  const auto first_string = [&](uint32_t string) {
    return fmt::format("string {} ({})", string, view.string(string));
  };
  Prefix prefix;
  std::memcpy(&prefix, file.data(), sizeof(prefix));
  dump.show(0, sizeof(prefix),
            {fmt::format("magic; version {}.{}; header of {:#x} bytes", prefix.major, prefix.minor,
                         prefix.header_bytes),
             fmt::format("{:#x} bytes; {} sections; reader ≥ {}.{}", prefix.file_bytes,
                         prefix.section_count, prefix.major, prefix.min_reader_minor),
             "hash of the header", "reserved"});
  for (size_t i = 0; i < 2; ++i) {
    const SectionEntry& section = view.sections[i];
    const uint64_t at = sizeof(Prefix) + i * sizeof(SectionEntry);
    const std::string what =
        fmt::format("section {}, {}; {}; at {:#x}", section.id, kSectionNames[section.id - 1],
                    section.flags == kRequired ? "required" : "optional", section.offset);
    dump.show(at, i == 0 ? sizeof(SectionEntry) : 16,
              {what, fmt::format("{} bytes; hash …", section.size), "… reserved"});
  }
  const uint64_t strings = offset_of(view, SectionId::Strings);
  dump.show(strings, 16,
            {fmt::format("{} strings; string 0: at {}, {} bytes", view.string_entries.size(),
                         view.string_entries[0].offset, view.string_entries[0].size)});
  const uint64_t gguf = offset_of(view, SectionId::GgufHeader);
  const GgufShardRecord& shard = view.gguf_shards[0];
  const GgufTensorRecord& tensor = view.gguf_tensors[0];
  dump.show(gguf, 8,
            {fmt::format("gguf-header: {} shard, {} tensors", view.gguf_shards.size(),
                         view.gguf_tensors.size())});
  dump.show(
      gguf + 8, sizeof(shard),
      {fmt::format("shard: header at {:#x}, {} bytes", shard.header_offset, shard.header_size),
       fmt::format("file of {:#x} bytes; alignment {}", shard.file_size, shard.alignment)});
  dump.show(
      gguf + 8 + sizeof(shard), sizeof(tensor),
      {fmt::format("tensor: {}; {}", first_string(tensor.name),
                   ktx::name(static_cast<DType>(tensor.dtype))),
       fmt::format("{} elements in {} rows", tensor.row_elems, tensor.rows),
       fmt::format("at {:#x} of shard {}; {} bytes", tensor.offset, tensor.shard, tensor.size)});
  const SegmentRecord& segment = view.segments[0];
  dump.show(offset_of(view, SectionId::Segments), sizeof(segment),
            {fmt::format("segment: device {}; weights; at {:#x}", first_string(segment.device),
                         segment.offset),
             fmt::format("{:#x} bytes; {} blobs from {} on", segment.size, segment.blob_count,
                         segment.first_blob)});
  const BlobRecord& blob = view.blobs[0];
  dump.show(offset_of(view, SectionId::Blobs), sizeof(blob),
            {fmt::format("blob: {}; {}; {}; at {:#x}", first_string(blob.name),
                         ktx::name(static_cast<DType>(blob.dtype)),
                         ktx::name(static_cast<Layout>(blob.layout)), blob.offset),
             fmt::format("{} bytes; {} rows", blob.size, blob.rows),
             fmt::format("of {}; {} matrix", blob.cols, blob.matrices),
             fmt::format("{} slice from {} on; hash …", blob.slice_count, blob.first_slice), "…"});
  constexpr size_t kStep = 4;
  const StepRecord& step = view.steps[kStep];
  dump.show(offset_of(view, SectionId::Steps) + kStep * sizeof(step), sizeof(step),
            {fmt::format("step {}: {}; module {}; layer {}; device {}", kStep,
                         ktx::info(static_cast<StepOp>(step.op)).name, step.module, step.layer,
                         first_string(step.device)),
             fmt::format("{} input from operand {} on; {} output from {} on", step.input_count,
                         step.first_input, step.output_count, step.first_output),
             fmt::format("{} weight uses from {} on; attributes at {}, {} bytes", step.weight_count,
                         step.first_weight, step.attrs_offset, step.attrs_size),
             fmt::format("kernels, exact and fast precision: {}", first_string(step.kernel[0]))});
  const ChunkRecord& chunk = view.chunks[0];
  dump.show(offset_of(view, SectionId::Chunks), sizeof(chunk),
            {fmt::format("chunk {} of segment {}: hash …", chunk.chunk, chunk.segment), "…"});
  const PartRecord& part = view.parts[0];
  dump.show(offset_of(view, SectionId::Parts), sizeof(part),
            {fmt::format("part: kind {}; device {}; steps from {} on,", part.kind,
                         first_string(part.device), part.first_step),
             fmt::format("{} of them", part.step_count)});
  dump.show(offset_of(view, SectionId::Digests), sizeof(DigestRecord),
            {fmt::format("SHA-256 of section 1; {} of them", view.digests.size()), "…"});
  for (const SegmentRecord& each : view.segments) {
    const bool carried = each.kind == static_cast<uint32_t>(SegmentKind::Carried);
    dump.say(each.offset, carried ? fmt::format("carried segment, {:#x} bytes", each.size)
                                  : fmt::format("weights of {}", view.string(each.device)));
  }
  return fmt::format("{} bytes, {} sections.\n\n{}\nIts root is {}.\n\n", file.size(),
                     view.sections.size(), dump.text(), to_hex(*root_digest(view)));
}

TEST(PlanFormatDoc, ShowsAPlanByteByByte) {
  const TempDir dir;
  ASSERT_TRUE(write_plan(make_tiny_plan(), dir.path("p")).ok());
  const auto plan = PlanFile::open(dir.path("p"));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto bytes = read_bytes(dir.path("p"));
  const std::string wanted = dump_of(*plan, bytes);
  const std::string text = read_file(kDocument);
  const std::string begins = "(`tests/unit/plan/tiny_plan.h`), ";
  const size_t begin = text.find(begins) + begins.size(), end = text.find("## Versions");
  ASSERT_LT(begin, end);
  ASSERT_NE(end, text.npos);
  if (std::getenv("KTX_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(kDocument, std::ios::binary)
        << text.substr(0, begin) << wanted << text.substr(end);
    return;
  }
  EXPECT_EQ(text.substr(begin, end - begin), wanted);
}

TEST(PlanFormatDoc, NamesTheVersionTheSectionsAndTheSizesOfTheirRecords) {
  const std::string text = read_file(kDocument);
  const auto has = [&](const std::string& row) {
    EXPECT_NE(text.find("\n" + row), text.npos) << row;
  };
  has(fmt::format("| 8 | u16 | major | {} |", kMajor));
  has(fmt::format("| 10 | u16 | minor | {} |", kMinor));
#define KTX_SECTION(id, number, name, element, sentence)               \
  has(sizeof(element) == 1 ? fmt::format("| {} | {} | ", number, name) \
                           : fmt::format("| {} | {} | {} B | ", number, name, sizeof(element)));
#include "lib/plan/sections.def"
#undef KTX_SECTION
}

// Each field of each record that has a table, with its place and type.
TEST(PlanFormatDoc, HasEveryFieldOfTheRecords) {
  const std::string text = read_file(kDocument);
  const auto has = [&](uint64_t at, const char* type, const char* field) {
    const std::string row = fmt::format("| {} | {} | {} |", at, type, field);
    EXPECT_NE(text.find(row), text.npos) << row;
  };
#define KTX_FIELD(Record, type, field) has(offsetof(Record, field), type, #field)
  KTX_FIELD(Prefix, "char[8]", magic);
  KTX_FIELD(Prefix, "u16", major);
  KTX_FIELD(Prefix, "u16", minor);
  KTX_FIELD(Prefix, "u32", header_bytes);
  KTX_FIELD(Prefix, "u64", file_bytes);
  KTX_FIELD(Prefix, "u32", section_count);
  KTX_FIELD(Prefix, "u32", min_reader_minor);
  KTX_FIELD(Prefix, "u128", header_hash);
  KTX_FIELD(Prefix, "u8[16]", reserved);
  KTX_FIELD(SectionEntry, "u32", id);
  KTX_FIELD(SectionEntry, "u32", flags);
  KTX_FIELD(SectionEntry, "u64", offset);
  KTX_FIELD(SectionEntry, "u64", size);
  KTX_FIELD(SectionEntry, "u128", hash);
  KTX_FIELD(SectionEntry, "u64", reserved);
  KTX_FIELD(SegmentRecord, "u64", offset);
  KTX_FIELD(SegmentRecord, "u64", size);
  KTX_FIELD(SegmentRecord, "u32", first_blob);
  KTX_FIELD(SegmentRecord, "u32", blob_count);
  KTX_FIELD(BlobRecord, "u64", offset);
  KTX_FIELD(BlobRecord, "u64", size);
  KTX_FIELD(BlobRecord, "i64", rows);
  KTX_FIELD(BlobRecord, "i64", cols);
  KTX_FIELD(BlobRecord, "i64", matrices);
  KTX_FIELD(BlobRecord, "u32", first_slice);
  KTX_FIELD(BlobRecord, "u32", slice_count);
  KTX_FIELD(BlobRecord, "u128", hash);
  KTX_FIELD(SliceRecord, "u32", tensor);
  KTX_FIELD(SliceRecord, "u32", blob);
  KTX_FIELD(SliceRecord, "i64", first_row);
  KTX_FIELD(SliceRecord, "i64", row_count);
  KTX_FIELD(SliceRecord, "i64", blob_row);
  KTX_FIELD(StepRecord, "u32", op);
  KTX_FIELD(StepRecord, "u32", module);
  KTX_FIELD(StepRecord, "i32", layer);
  KTX_FIELD(StepRecord, "u32", device);
  KTX_FIELD(StepRecord, "u32[2]", kernel);
  KTX_FIELD(ValueRecord, "u32", name);
  KTX_FIELD(ValueRecord, "u8", type);
  KTX_FIELD(ValueRecord, "u8", rows);
  KTX_FIELD(ValueRecord, "u16", reserved);
  KTX_FIELD(ValueRecord, "u32", rows_per_row);
  KTX_FIELD(ValueRecord, "u32", buffer);
  KTX_FIELD(ValueRecord, "i64", width);
  KTX_FIELD(LaunchRecord, "u32", fused_op);
  KTX_FIELD(LaunchRecord, "u32", kernel);
  KTX_FIELD(LaunchRecord, "u32", needs);
  KTX_FIELD(LaunchRecord, "u32", least_run);
  KTX_FIELD(GgufShardRecord, "u64", header_size);
  KTX_FIELD(GgufShardRecord, "u64", file_size);
  KTX_FIELD(GgufShardRecord, "u64", alignment);
  KTX_FIELD(GgufTensorRecord, "u16", dtype);
  KTX_FIELD(GgufTensorRecord, "u32", shard);
  KTX_FIELD(GgufTensorRecord, "u64", size);
#undef KTX_FIELD
  // Records that a sentence has: their fields in order, without gaps.
  for (const char* sentence :
       {"**operand** (u32 value, u32 offset, u32 width)",
        "**buffer** (u64 fixed_bytes, u64 bytes_per_token, u64 bytes_per_output)",
        "slot** (i32 layer, i32 kv_heads, i32 key_dim, i32 value_dim, u32 device, i32 window)",
        "**part** (u32 kind, u32 device, u32 from, u32 first_step, u32 step_count)",
        "one record (u32 segment, u32 chunk, u128 hash)"}) {
    std::string flat = text;
    std::ranges::replace(flat, '\n', ' ');
    EXPECT_NE(flat.find(sentence), flat.npos) << sentence;
  }
}

}  // namespace
}  // namespace ktx::plan

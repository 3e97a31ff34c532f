#include "lib/plan/plan_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "lib/plan/verify_weights.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ::testing::HasSubstr;

class PlanReader : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = dir_.path() + "/tiny.ktxplan";
    const Status status = write_plan(tiny_, path_);
    ASSERT_TRUE(status.ok()) << status.error().message;
    bytes_ = read_bytes(path_);
  }

  // The message of the failure, or "".
  std::string open_error(std::span<const std::byte> bytes, bool verify = false) {
    file_.set(bytes);
    return open_error_of(file_.path(), verify);
  }
  static std::string open_error_of(const std::string& path, bool verify = false) {
    PlanOpenOptions options;
    options.verify_weights = verify;
    options.threads = 1;
    const auto plan = PlanFile::open(path, options);
    return plan.ok() ? "" : plan.error().message;
  }
  uint64_t weights_begin() const {
    return reinterpret_cast<const SegmentRecord*>(bytes_.data() +
                                                  find_section(bytes_, SectionId::Segments)->offset)
        ->offset;
  }

  ktx::testing::TempDir dir_;
  TinyPlan tiny_ = make_tiny_plan();
  std::string path_;
  std::vector<std::byte> bytes_;
  MemoryFile file_;
};

TEST_F(PlanReader, OpensThePlanWithin) {
  EXPECT_THAT(PlanFile::open(path_, {.drafter = true}).error().message,
              HasSubstr("the plan has no drafter; compile it with one"));
  TinyPlan outer = make_tiny_plan();
  outer.contents.facts.name = "outer";
  outer.contents.drafter = bytes_;
  const std::string path = dir_.path() + "/outer.ktxplan";
  ASSERT_TRUE(write_plan(outer, path).ok());
  const std::vector<std::byte> written = read_bytes(path);
  const auto plan = PlanFile::open(path, {.verify_weights = true});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ((*plan)->facts.name, "outer");
  EXPECT_TRUE((*plan)->has_drafter);
  const auto within = PlanFile::open(path, {.verify_weights = true, .drafter = true});
  ASSERT_TRUE(within.ok()) << within.error().message;
  EXPECT_EQ((*within)->facts.name, "tiny");
  EXPECT_FALSE((*within)->has_drafter);
  EXPECT_EQ((*within)->file.size(), bytes_.size());
  EXPECT_TRUE(std::ranges::equal((*within)->file, bytes_));

  // Older readers do not know it, and are not left to find out.
  Prefix head;
  std::memcpy(&head, written.data(), sizeof head);
  EXPECT_EQ(head.min_reader_minor, 3u);
  // Damage within is found within.
  const SectionEntry* section = find_section(written, SectionId::Drafter);
  ASSERT_NE(section, nullptr);
  const auto error_of = [&](std::vector<std::byte> damaged) {
    file_.set(damaged);
    const auto opened = PlanFile::open(file_.path(), {.drafter = true});
    return opened.ok() ? "" : opened.error().message;
  };
  for (const uint64_t at : {uint64_t{0}, uint64_t{20}, uint64_t{70}}) {
    std::vector<std::byte> damaged = written;
    damaged[section->offset + at] ^= std::byte{1};
    EXPECT_NE(error_of(damaged), "") << at;
    file_.set(damaged);
    EXPECT_TRUE(PlanFile::open(file_.path(), {}).ok()) << "the model runs without it";
  }
  std::vector<std::byte> cut = written;
  cut.resize(cut.size() - 64);
  EXPECT_THAT(error_of(cut), HasSubstr("cut off"));
}

TEST_F(PlanReader, GivesBackWhatWasWritten) {
  auto plan = PlanFile::open(path_, {.verify_weights = true});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const PlanView& view = plan->view();
  const PlanContents& c = tiny_.contents;
  EXPECT_EQ(view.facts, c.facts);
  EXPECT_EQ(view.target, c.target);
  EXPECT_EQ(view.provenance, c.provenance);
  EXPECT_EQ(view.chat_template, c.chat_template);
  EXPECT_EQ(view.module_graph, c.module_graph);
  EXPECT_EQ(view.steps.size(), c.steps.size());
  EXPECT_EQ(view.string(view.steps[3].module), "model.layers.0");
  EXPECT_EQ(view.attrs_of<AttentionAttrs>(view.steps[8]).heads, 4);
  ASSERT_EQ(view.blobs.size(), tiny_.sources.size());
  for (uint32_t b = 0; b < view.blobs.size(); ++b) {
    std::string joined;
    for (const auto slice : tiny_.sources[b].slices) {
      joined.append(reinterpret_cast<const char*>(slice.data()), slice.size());
    }
    if (c.constants.contains(b)) {
      const auto& constant = c.constants.at(b);
      joined.assign(reinterpret_cast<const char*>(constant.data()), constant.size());
    }
    const auto packed = view.blob_bytes(b);
    EXPECT_EQ(joined, std::string(reinterpret_cast<const char*>(packed.data()), packed.size()));
    EXPECT_EQ(view.blobs[b].hash, hash_bytes(packed));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.data()) % kBlobAlignment, 0u);
  }
}

TEST_F(PlanReader, RejectsEveryTruncation) {
  file_.set(bytes_);
  const size_t weights = weights_begin();
  for (size_t size = bytes_.size(); size-- > 0;) {
    if (size > weights && size % 31 != 0) continue;
    file_.resize(size);
    ASSERT_NE(open_error_of(file_.path()), "") << size << " bytes";
  }
}

TEST_F(PlanReader, RejectsMoreBytesThanWritten) {
  bytes_.push_back(std::byte{0});
  EXPECT_THAT(open_error(bytes_), HasSubstr("extended"));
}

TEST_F(PlanReader, RejectsEveryChangedByteBeforeTheWeights) {
  file_.set(bytes_);
  const uint64_t weights = weights_begin();
  for (uint64_t at = 0; at < weights; ++at) {
    const auto flipped = bytes_[at] ^ std::byte(1 << (at % 8));
    file_.poke(at, flipped);
    ASSERT_NE(open_error_of(file_.path()), "") << "byte " << at;
    file_.poke(at, bytes_[at]);
  }
  EXPECT_EQ(open_error_of(file_.path()), "");
}

TEST_F(PlanReader, FindsEveryChangedByteOfTheWeightsWhenAsked) {
  file_.set(bytes_);
  for (uint64_t at = weights_begin(); at < bytes_.size(); at += 97) {
    file_.poke(at, bytes_[at] ^ std::byte{16});
    ASSERT_THAT(open_error_of(file_.path(), true),
                ::testing::AnyOf(HasSubstr("damaged"), HasSubstr("not padding")))
        << "byte " << at;
    file_.poke(at, bytes_[at]);
  }
}

TEST_F(PlanReader, NamesWhatElseTheFileIs) {
  const auto error_of = [&](std::string_view text) {
    return open_error(std::as_bytes(std::span(text)));
  };
  EXPECT_THAT(error_of("GGUF\x03"), HasSubstr("compile it first: ktx-compile"));
  EXPECT_THAT(error_of("{\"a\": 1}"), HasSubstr("JSON"));
  EXPECT_THAT(error_of("hello, world"), HasSubstr("it begins with 'hello, w'"));
  EXPECT_THAT(error_of("KTXWORK\x1a"), HasSubstr("not finished"));
  EXPECT_THAT(error_of("KTXPLAN\x1a"), HasSubstr("cut off"));
  EXPECT_THAT(error_of("KTX"), HasSubstr("cut off"));
}

TEST_F(PlanReader, RefusesOtherMajorVersions) {
  prefix(bytes_).major = 4;
  fix_hashes(bytes_);
  EXPECT_THAT(open_error(bytes_),
              HasSubstr(fmt::format("plan format 4.{}, this ktx-run reads 3.x", kMinor)));
  prefix(bytes_).major = 2;
  fix_hashes(bytes_);
  EXPECT_THAT(open_error(bytes_), HasSubstr("compile the model again: ktx-compile MODEL.gguf"));
}

TEST_F(PlanReader, AcceptsNewerMinorVersionsThatAllowIt) {
  prefix(bytes_).minor = kMinor + 1;
  fix_hashes(bytes_);
  EXPECT_EQ(open_error(bytes_), "");
  prefix(bytes_).min_reader_minor = kMinor + 1;
  fix_hashes(bytes_);
  EXPECT_THAT(open_error(bytes_), HasSubstr("use a newer ktx-run"));
}

// A section that this version does not know, at the end of the file.
TEST_F(PlanReader, SkipsUnknownOptionalSectionsAndRefusesRequiredOnes) {
  std::vector<std::byte> grown = with_extra_section(bytes_, 77, 0, "from the future");
  EXPECT_EQ(open_error(grown, true), "");
  grown = with_extra_section(bytes_, 77, kRequired, "from the future");
  EXPECT_THAT(open_error(grown), HasSubstr("section number 77 is not known here"));
}

TEST_F(PlanReader, RefusesMissingAndDoubleSections) {
  auto bytes = bytes_;
  find_section(bytes, SectionId::Tokenizer)->id = 99;
  find_section(bytes, static_cast<SectionId>(99))->flags = 0;
  fix_hashes(bytes);
  EXPECT_THAT(open_error(bytes), HasSubstr("section 'tokenizer' is missing"));
  bytes = bytes_;
  find_section(bytes, SectionId::Tokenizer)->id = static_cast<uint32_t>(SectionId::ModuleGraph);
  fix_hashes(bytes);
  EXPECT_THAT(open_error(bytes), HasSubstr("section 'module-graph' is there twice"));
}

TEST_F(PlanReader, RefusesSectionsThatOverlapOrLeaveTheFile) {
  for (uint64_t offset : {uint64_t{0}, uint64_t{64}, uint64_t{1} << 63, ~uint64_t{63}}) {
    auto bytes = bytes_;
    find_section(bytes, SectionId::Tokenizer)->offset = offset;
    fix_hashes(bytes);
    EXPECT_NE(open_error(bytes), "") << offset;
  }
  auto bytes = bytes_;
  find_section(bytes, SectionId::Tokenizer)->size = ~uint64_t{0};
  fix_hashes(bytes);
  EXPECT_NE(open_error(bytes), "");
}

// Only padding more than is usual, but the section's records would not lie on their alignment.
TEST_F(PlanReader, RefusesUnalignedSections) {
  std::vector<std::byte> grown = with_extra_section(bytes_, 77, 0, "from the future");
  SectionEntry& last = sections(grown).back();
  grown.insert(grown.begin() + static_cast<ptrdiff_t>(last.offset), 4, std::byte{0});
  last.offset += 4;
  prefix(grown).file_bytes = grown.size();
  fix_hashes(grown);
  EXPECT_THAT(open_error(grown), HasSubstr("do not lie between"));
}

// One wrong field at a time, with all hashes right: the field's own message.
struct Lie {
  const char* name;
  SectionId section;
  size_t offset;  // in the section
  uint32_t value;
  const char* message;
};

size_t step_field(size_t step, size_t field) {
  return step * sizeof(StepRecord) + field;
}

TEST_F(PlanReader, FindsLiesThatHashesDoNotShow) {
  const PlanContents& c = tiny_.contents;
  const auto attrs_at = [&](StepOp op, size_t field) {
    for (const StepRecord& step : c.steps) {
      if (step.op == static_cast<uint32_t>(op)) return step.attrs_offset + field;
    }
    return size_t{0};
  };
  const auto operand_at = [&](size_t step, size_t input, size_t field) {
    return (c.steps[step].first_input + input) * sizeof(OperandRecord) + field;
  };
  const Lie lies[] = {
      {"string", SectionId::Strings, 8, 0xFFFFFFF0, "string 0 is bytes"},
      {"string count", SectionId::Strings, 0, 0xFFFFFFFF, "strings in"},
      {"segment kind", SectionId::Segments, 4, 9, "kind 9"},
      {"segment offset", SectionId::Segments, 8, 4096 * 5, "are no weights section"},
      {"segment blobs", SectionId::Segments, 28, 0xFFFFFFFF, "segment 0: weights"},
      {"blob dtype", SectionId::Blobs, 4, 200, "element type 200"},
      {"blob layout", SectionId::Blobs, 4, 6 | 9 << 16, "layout 9"},
      {"blob offset", SectionId::Blobs, 8, 1, "do not follow"},
      {"blob size", SectionId::Blobs, 16, 1 << 30, "in 1073741824 bytes"},
      {"blob rows", SectionId::Blobs, 24, 0, "shape [64, 0]"},
      {"blob cols", SectionId::Blobs, 32, 65, "no whole blocks"},
      {"blob matrices", SectionId::Blobs, 40, 1 << 15, "in 3264 bytes"},
      {"blob slices", SectionId::Blobs, 48, 5, "its slices begin at 5"},
      {"slice tensor", SectionId::Slices, 0, 1000, "GGUF tensor 1000"},
      {"slice rows", SectionId::Slices, 16, 1000, "a slice of 1000 rows"},
      {"slice first row", SectionId::Slices, 8, 1, "rows from 1 of a tensor"},
      {"same rows twice", SectionId::Slices, 3 * sizeof(SliceRecord), 2, "two weights hold"},
      {"value buffer", SectionId::Values, 12, 1000, "buffer 1000"},
      {"value width", SectionId::Values, 16, 0x7FFFFFFF, "rows of 2147483647 elements"},
      {"value grown", SectionId::Values, 16, 128, "with room for"},
      {"buffer shrunk", SectionId::Buffers, 8, 16, "with room for 16"},
      {"operand value", SectionId::Operands, 0, 4000, "value 4000"},
      {"operand offset", SectionId::Operands, 4, 0xFFFFFFFF, "operand 0: elements"},
      {"kv heads", SectionId::KvSlots, 4, 0xFFFFFFFF, "kv slot 0"},
      {"kv layer", SectionId::KvSlots, 0, 9, "layer 9 of 2"},
      {"op", SectionId::Steps, step_field(0, 0), 999, "op 999 is not known"},
      {"module", SectionId::Steps, step_field(0, 4), 9999, "module 9999"},
      {"layer", SectionId::Steps, step_field(0, 8), 7, "layer is 7"},
      {"inputs", SectionId::Steps, step_field(1, 16), 5000, "inputs 5000"},
      {"input count", SectionId::Steps, step_field(1, 20), 3, "3 inputs, expected 1"},
      {"weights", SectionId::Steps, step_field(1, 36), 0, "0 weights, expected 1"},
      {"attrs", SectionId::Steps, step_field(1, 40), 0xFFFFFFF0, "attributes"},
      {"attrs size", SectionId::Steps, step_field(1, 44), 12, "12 bytes of attributes"},
      {"kernel", SectionId::Steps, step_field(1, 48), 12345, "kernel 12345"},
      {"part kind", SectionId::Parts, 0, 3, "part 0: kind 3"},
      {"part device", SectionId::Parts, 4, 9999, "part 0: kind 0, device 9999"},
      {"part steps", SectionId::Parts, 16, 9999, "part 0: steps 0 to 9999"},
      {"part too short", SectionId::Parts, 16, 3, "the parts end at step 3"},
      {"weight index", SectionId::WeightUses, 4, 9999, "weight 9999"},
      {"other weight", SectionId::WeightUses, 4, 4, "weight is [64, 192]"},
      {"carried weight", SectionId::WeightUses, 4, static_cast<uint32_t>(c.blobs.size() - 1),
       "only carried"},
      {"missing weight", SectionId::WeightUses, 4, kNone, "is missing"},
      {"norm groups", SectionId::Attrs, attrs_at(StepOp::RmsNorm, 4), 0, "groups is 0"},
      {"rotary", SectionId::Attrs, attrs_at(StepOp::Rope, 20), 1000, "rotary_dim is 1000"},
      {"odd rotary", SectionId::Attrs, attrs_at(StepOp::Rope, 20), 31, "expected an even"},
      {"rope heads", SectionId::Attrs, attrs_at(StepOp::Rope, 0), 7, "7 heads of 32"},
      {"slot", SectionId::Attrs, attrs_at(StepOp::Attention, 0), 2, "slot is 2"},
      {"other slot", SectionId::Attrs, attrs_at(StepOp::Attention, 0), 1, "over a slot"},
      {"heads", SectionId::Attrs, attrs_at(StepOp::Attention, 4), 5, "5 heads share 2"},
      {"top k", SectionId::Attrs, attrs_at(StepOp::Router, 4), 5, "top_k is 5"},
      {"groups", SectionId::Attrs, attrs_at(StepOp::Router, 20), 3, "4 experts in 3 groups"},
      {"negative", SectionId::Attrs, attrs_at(StepOp::Router, 0), 0xFFFFFFFF, "experts is -1"},
      {"grouped", SectionId::Attrs, attrs_at(StepOp::GroupExperts, 0), 3, "but the router gives"},
      {"experts", SectionId::Attrs, attrs_at(StepOp::ExpertsDown, 0), 8, "grouped as 2 of 4"},
      {"stride", SectionId::Attrs, attrs_at(StepOp::MatmulHeads, 16), 4000, "4000 apart"},
      {"row begin", SectionId::Attrs, attrs_at(StepOp::MatmulHeads, 8), 33, "row_count is 32"},
      {"infinite", SectionId::Attrs, attrs_at(StepOp::Attention, 24), 0x7F800000, "scale is inf"},
      // Step 1 reads `n` before the norm has written it.
      {"unwritten", SectionId::Operands, operand_at(1, 0, 0), 1, "before it is written"},
  };
  for (const Lie& lie : lies) {
    auto bytes = bytes_;
    const uint64_t at = find_section(bytes, lie.section)->offset + lie.offset;
    std::memcpy(bytes.data() + at, &lie.value, sizeof(lie.value));
    fix_hashes(bytes);
    EXPECT_THAT(open_error(bytes), HasSubstr(lie.message)) << lie.name;
  }
}

// Hostile files whose hashes are all right: refused or usable, never a crash.
TEST_F(PlanReader, SurvivesMutationsWithRightHashes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const uint64_t interesting[] = {0,
                                  1,
                                  2,
                                  3,
                                  31,
                                  32,
                                  64,
                                  255,
                                  1 << 16,
                                  0x7FFFFFFF,
                                  0x80000000,
                                  0xFFFFFFFF,
                                  uint64_t{1} << 32,
                                  uint64_t{1} << 62,
                                  uint64_t{1} << 63,
                                  ~uint64_t{0}};
  int opened = 0;
  const uint64_t weights = weights_begin();
  for (int round = 0; round < 6000; ++round) {
    auto bytes = bytes_;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes; ++i) {
      // Any record is as likely as any other section's; text is boring. The table is that
      // of the whole plan: the one in `bytes` may be damaged by now.
      const auto& section = sections(bytes_)[random() % prefix(bytes_).section_count];
      uint64_t at = section.offset + (section.size > 0 ? random() % section.size : 0);
      if (random() % 20 == 0) at = random() % weights;
      uint64_t value = interesting[random() % std::size(interesting)];
      uint64_t old = 0;
      const size_t width = size_t{1} << (random() % 4);
      at = std::min<uint64_t>(at / width * width, bytes.size() - 8);
      std::memcpy(&old, bytes.data() + at, width);
      if (random() % 2 == 0) value = old + (random() % 2 == 0 ? 1 : ~uint64_t{0});
      std::memcpy(bytes.data() + at, &value, width);
    }
    fix_hashes(bytes);
    file_.set(bytes);
    const auto plan = PlanFile::open(file_.path());
    if (!plan.ok()) continue;
    ++opened;
    touch_everything(plan->view());
    (void)verify_weights(plan->view(), 1);
  }
  EXPECT_GT(opened, 100);  // else this test tests nothing
}

TEST_F(PlanReader, RejectsAFileThatShrinksWhileOpen) {
  file_.set(bytes_);
  auto plan = PlanFile::open(file_.path());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  file_.resize(4096);
  uint64_t sum = 0;
  for (const std::byte b : plan->view().blob_bytes(5)) sum += static_cast<uint64_t>(b);
  EXPECT_EQ(sum, 0u);
  EXPECT_THAT(plan->check().error().message, HasSubstr("became smaller"));
}

}  // namespace
}  // namespace ktx::plan

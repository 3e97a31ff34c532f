// docs/plan-format.md shows a plan byte by byte: the tiny plan of these tests. Compares its
// lines with the plan as currently written.
//
//   KTX_UPDATE_GOLDEN=1 build-release/tests/test_unit_plan --gtest_filter='PlanFormatDoc.*'
//
// rewrites the bytes of each line at the line's offset; offsets and remarks are written by
// hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "lib/support/regex.h"
#include "lib/support/strings.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ktx::testing::TempDir;

const std::string kDocument = source_dir() + "/docs/plan-format.md";

// "4b 54 … 1a  01 00 …" of up to 16 bytes, as the document writes them.
std::string hex_columns(std::span<const std::byte> bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += i == 8 ? "  " : " ";
    out += fmt::format("{:02x}", static_cast<unsigned>(bytes[i]));
  }
  return out;
}

TEST(PlanFormatDoc, ShowsTheBytesOfThePlan) {
  TempDir dir;
  ASSERT_TRUE(write_plan(make_tiny_plan(), dir.path("p")).ok());
  const auto plan = read_bytes(dir.path("p"));
  const std::string text = ktx::testing::read_file(kDocument);
  EXPECT_NE(text.find(fmt::format("{} bytes, ", plan.size())), std::string::npos)
      << "the plan has " << plan.size() << " bytes";
  const bool update = std::getenv("KTX_UPDATE_GOLDEN") != nullptr;
  const auto offset_form = Regex::compile("^    [0-9a-f]{8}  ");
  const auto bytes_form = Regex::compile("^(?:[0-9a-f]{2} {1,2}){1,15}[0-9a-f]{2}(?= {3,})");
  ASSERT_TRUE(offset_form.ok() && bytes_form.ok());
  std::string updated;
  int lines = 0;
  for (const std::string_view line : split(text, '\n')) {
    std::string whole(line);
    const auto offset_part = offset_form->search(line);
    const std::string_view rest = line.substr(offset_part ? offset_part->end : line.size());
    if (const auto bytes_part = bytes_form->search(rest)) {
      ++lines;
      const size_t offset = std::strtoull(whole.c_str(), nullptr, 16);
      const std::string_view shown = rest.substr(0, bytes_part->end);
      const size_t count = std::min<size_t>((shown.size() + 2) / 3, 16);
      ASSERT_LE(offset + count, plan.size()) << whole;
      const std::string actual = hex_columns(std::as_bytes(std::span(plan)).subspan(offset, count));
      if (update) {
        whole = fmt::format("{}{}{}", line.substr(0, offset_part->end), actual,
                            rest.substr(bytes_part->end));
      } else {
        EXPECT_EQ(shown, actual) << whole;
      }
    }
    updated += whole + "\n";
  }
  EXPECT_GT(lines, 20);
  updated.pop_back();
  if (update) std::ofstream(kDocument, std::ios::binary) << updated;
}

}  // namespace
}  // namespace ktx::plan

// docs/plan-format.md shows a plan byte by byte: the tiny plan of these tests. Its
// lines are compared with that plan as it is written now.
//
//   KTX_UPDATE_GOLDEN=1 build-release/tests/test_unit_plan --gtest_filter='PlanFormatDoc.*'
//
// rewrites the bytes of each line at the line's offset; offsets and remarks are a
// person's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>

#include "lib/support/strings.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ktx::testing::TempDir;

const std::string kDocument = KTX_SOURCE_DIR "/docs/plan-format.md";

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
  const std::regex line_form(
      "    ([0-9a-f]{8})  ((?:[0-9a-f]{2} {1,2}){1,15}[0-9a-f]{2})( {3,}.*)");
  std::string updated;
  int lines = 0;
  for (const std::string_view line : split(text, '\n')) {
    std::string whole(line);
    std::smatch parts;
    if (std::regex_match(whole, parts, line_form)) {
      ++lines;
      const size_t offset = std::strtoull(parts[1].str().c_str(), nullptr, 16);
      const std::string shown = parts[2];
      const size_t count = std::min<size_t>((shown.size() + 2) / 3, 16);
      ASSERT_LE(offset + count, plan.size()) << whole;
      const std::string actual = hex_columns(std::as_bytes(std::span(plan)).subspan(offset, count));
      if (update) {
        whole = fmt::format("    {}  {}{}", parts[1].str(), actual, parts[3].str());
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

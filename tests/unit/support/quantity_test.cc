#include "lib/support/quantity.h"

#include <gtest/gtest.h>

#include <string>

namespace ktx {
namespace {

constexpr int64_t kMax = int64_t{1} << 50;

TEST(Quantity, CountsTakeUnitsOf1024) {
  for (const auto& [text, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"0", 0},
                                                              {"7", 7},
                                                              {"4096", 4096},
                                                              {"32k", 32768},
                                                              {"32K", 32768},
                                                              {"1.5k", 1536},
                                                              {"1m", 1 << 20},
                                                              {"1M", 1 << 20},
                                                              {"2g", int64_t{2} << 30},
                                                              {" 8k ", 8192}}) {
    EXPECT_EQ(parse_count(text, 0, kMax), value) << text;
  }
}

TEST(Quantity, SizesTakeEveryUsualSpelling) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  for (const auto& [text, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"1", 1},
                                                              {"4096", 4096},
                                                              {"4096b", 4096},
                                                              {"4g", 4 * kGiB},
                                                              {"4G", 4 * kGiB},
                                                              {"4gb", 4 * kGiB},
                                                              {"4GB", 4 * kGiB},
                                                              {"4GiB", 4 * kGiB},
                                                              {"4gib", 4 * kGiB},
                                                              {"4 GiB", 4 * kGiB},
                                                              {" 4 gb ", 4 * kGiB},
                                                              {"1.5G", kGiB * 3 / 2},
                                                              {".5g", kGiB / 2},
                                                              {"0.25GiB", kGiB / 4},
                                                              {"4096M", 4 * kGiB},
                                                              {"4096 MiB", 4 * kGiB},
                                                              {"64K", 65536},
                                                              {"64kB", 65536},
                                                              {"1T", 1024 * kGiB},
                                                              {"1024TiB", kMax},
                                                              {"0.000001T", 1099511}}) {
    EXPECT_EQ(parse_size(text, kMax), value) << text;
  }
}

TEST(Quantity, NonsenseAndWhatIsOutOfRangeIsNoNumber) {
  for (const char* text : {"",
                           " ",
                           "4X",
                           "1e9",
                           "-1",
                           "-1k",
                           "+4k",
                           "0x10",
                           "４k",
                           "4ｋ",
                           "k",
                           ".",
                           "5.",
                           "5.k",
                           "1.",
                           "1..5k",
                           "1,5k",
                           "1_000",
                           "4kk",
                           "4 k k",
                           "4  k",
                           "4k\n4",
                           "4ki b",
                           "inf",
                           "nan",
                           "1.5",
                           "9223372036854775808",
                           "99999999999999999999",
                           "9223372036854775807k",
                           "1.0000000k",
                           "4\u00a0G"}) {
    EXPECT_EQ(parse_count(text, 0, kMax), std::nullopt) << text;
    EXPECT_EQ(parse_size(text, kMax), std::nullopt) << text;
  }
  EXPECT_EQ(parse_count(std::string("4\0k", 3), 0, kMax), std::nullopt);
  for (const char* text : {"4kb", "4GiB", "1t", "1.3k", "4b"}) {  // sizes alone
    EXPECT_EQ(parse_count(text, 0, kMax), std::nullopt) << text;
  }
  for (const char* text : {"0", "0G", "0.5", "0.5b", "1025T", "1024.1T", "4i", "4bi", "4gig"}) {
    EXPECT_EQ(parse_size(text, kMax), std::nullopt) << text;
  }
  EXPECT_EQ(parse_count("17k", 0, 16384), std::nullopt);
  EXPECT_EQ(parse_count("16k", 0, 16384), 16384);
  EXPECT_EQ(parse_count("16.5k", 0, 16384), std::nullopt);
  EXPECT_EQ(parse_whole("4k", 0, kMax), std::nullopt);
  EXPECT_EQ(parse_whole("12", 0, 11), std::nullopt);
}

}  // namespace
}  // namespace ktx

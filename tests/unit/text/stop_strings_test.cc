#include "lib/text/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/text/stream_pieces.h"

namespace ktx::text {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::string text;
  std::string stopped_by;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings stop = StopStrings::create(stops).take();
  Outcome out;
  for (const std::string& piece : pieces) out.text += stop.add(piece);
  out.text += stop.finish();
  if (stop.stopped()) out.stopped_by = stop.stopped_by();
  return out;
}

// The rule, written plainly: the stop string that ends first, then the longest.
Outcome expected(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop) && stop.size() > best.size()) best = stop;
    }
    if (!best.empty()) return {text.substr(0, end - best.size()), best};
  }
  return {text, ""};
}

TEST(StopStrings, EndsTheTextBeforeTheFirstOne) {
  EXPECT_EQ(run({"END", "\nUser:"}, {"Hi\nUser: END"}), (Outcome{"Hi", "\nUser:"}));
  EXPECT_EQ(run({"ab"}, {"aab"}), (Outcome{"a", "ab"}));
  EXPECT_EQ(run({"bc", "abcd"}, {"xabcd"}), (Outcome{"xa", "bc"}));
  EXPECT_EQ(run({"c", "bc"}, {"abc"}), (Outcome{"a", "bc"}));
  EXPECT_EQ(run({}, {"abc"}), (Outcome{"abc", ""}));
}

TEST(StopStrings, NeverShowsABeginningOfOne) {
  StopStrings stop = StopStrings::create({"\nUser:"}).take();
  EXPECT_EQ(stop.add("Hello\nUs"), "Hello");
  EXPECT_EQ(stop.add("ers\n"), "\nUsers");
  EXPECT_EQ(stop.finish(), "\n");
  EXPECT_FALSE(stop.stopped());
}

TEST(StopStrings, NothingComesBehindOne) {
  StopStrings stop = StopStrings::create({"X"}).take();
  EXPECT_EQ(stop.add("aXb"), "a");
  EXPECT_EQ(stop.add("c"), "");
  EXPECT_EQ(stop.finish(), "");
  EXPECT_EQ(stop.stopped_by(), "X");
}

TEST(StopStrings, AnyCutOfTheTextGivesTheSame) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto word = [&](int most) {
      std::string out;
      for (int n = 1 + static_cast<int>(random() % most); n > 0; --n) out += "ab<"[random() % 3];
      return out;
    };
    std::vector<std::string> stops;
    for (int n = static_cast<int>(random() % 4); n > 0; --n) stops.push_back(word(6));
    const std::string text = word(40);
    const Outcome want = expected(stops, text);
    for (const auto& pieces : ktx::testing::cuts(text, 5)) {
      ASSERT_EQ(run(stops, pieces), want) << "round " << round << " text " << text;
    }
  }
}

TEST(StopStrings, RefusesWhatIsNoStopString) {
  EXPECT_THAT(StopStrings::create({"a", ""}).error().message, HasSubstr("is empty"));
  EXPECT_THAT(StopStrings::create({std::string(5000, 'x')}).error().message,
              HasSubstr("5000 bytes; at most 4096"));
  EXPECT_THAT(StopStrings::create(std::vector<std::string>(65, "x")).error().message,
              HasSubstr("65 stop strings given; at most 64"));
}

}  // namespace
}  // namespace ktx::text

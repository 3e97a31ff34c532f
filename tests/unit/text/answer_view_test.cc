#include "tools/ktx-run/answer_view.h"

#include <gtest/gtest.h>

namespace ktx::tools {
namespace {

// What is printed into a pipe, and the message that is kept of it.
TEST(AnswerView, OfKimiK3ShowsAndKeepsTheContentAlone) {
  const auto tags = text::detect_reasoning("<|open|>");
  AnswerView view(tags, "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>");
  for (const char* token : {"<|open|>", "<|close|>", "<|sep|>"}) {
    EXPECT_TRUE(view.marker(token)) << token;
  }
  EXPECT_FALSE(view.marker("<|end_of_msg|>"));
  ::testing::internal::CaptureStdout();
  for (const char* piece : {"hm", "<|close|>", "think<|sep|>", "<|open|>response", "<|sep|>", "Hi",
                            "<|close|>response<|sep|>", "<|close|>message<|sep|>"}) {
    view.add(piece);
  }
  view.finish();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "Hi\n");
  EXPECT_EQ(view.message("all"), "Hi");
}

TEST(AnswerView, OfOtherTagsIsTheTextAsItComes) {
  AnswerView view(text::detect_reasoning("<think>"), "");
  EXPECT_TRUE(view.marker("</think>"));
  EXPECT_FALSE(view.marker("<|im_end|>"));
  ::testing::internal::CaptureStdout();
  view.add("<think>hm</think>Hi");
  view.finish();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "<think>hm</think>Hi\n");
  EXPECT_EQ(view.message("all"), "all");
}

}  // namespace
}  // namespace ktx::tools

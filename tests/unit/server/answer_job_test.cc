#include "lib/server/answer/answer_job.h"

#include <gtest/gtest.h>

#include "lib/server/openai/openai_format.h"
#include "lib/server/request/scheduler_refusal.h"

namespace ktx::server {
namespace {

TEST(ApiErrors, HaveTheStatusThatClientsKnow) {
  using Refusal = runtime::BatchScheduler::Refusal;
  EXPECT_EQ(to_api_error({Refusal::Invalid, "m"}).status, 400);
  EXPECT_EQ(to_api_error({Refusal::TooLong, "m"}).code, "context_length_exceeded");
  const ApiError full = to_api_error({Refusal::QueueFull, "m"});
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(error_headers(full)[0].first, "Retry-After");
  EXPECT_EQ(to_api_error({Refusal::Draining, "m"}).status, 503);
  runtime::RequestEnd end;
  end.reason = runtime::EndReason::Deadline;
  EXPECT_EQ(end_error(end).status, 503);
  end.reason = runtime::EndReason::Failed;
  end.error = "a logit is NaN";
  EXPECT_EQ(end_error(end).status, 500);
  EXPECT_EQ(end_error(end).message, "a logit is NaN");
}

TEST(UsageTest, CountsEachPromptOnce) {
  Usage usage;
  ChoiceEnd choice;
  choice.result.prompt_tokens = 100;
  choice.result.cached_tokens = 64;
  choice.result.completion_tokens = 10;
  choice.reasoning_tokens = 4;
  usage.add(0, choice);
  choice.result.cached_tokens = 99;
  usage.add(0, choice);
  Json json = usage.json();
  EXPECT_EQ(json["prompt_tokens"], 100);
  EXPECT_EQ(json["completion_tokens"], 20);
  EXPECT_EQ(json["total_tokens"], 120);
  EXPECT_EQ(json["prompt_tokens_details"]["cached_tokens"], 64);
  EXPECT_EQ(json["completion_tokens_details"]["reasoning_tokens"], 8);
  choice.result.prompt_tokens = 7;
  choice.result.cached_tokens = 2;
  usage.add(1, choice);
  json = usage.json();
  EXPECT_EQ(json["prompt_tokens"], 107);
  EXPECT_EQ(json["completion_tokens"], 30);
  EXPECT_EQ(json["total_tokens"], 137);
  EXPECT_EQ(json["prompt_tokens_details"]["cached_tokens"], 66);
}

TEST(OpenAiFormat, IdsAreNotRepeated) {
  EXPECT_EQ(new_id("x-").size(), 26u);
  EXPECT_NE(new_id("x-"), new_id("x-"));
  EXPECT_EQ(sse(Json{{"a", 1}}), "data: {\"a\":1}\n\n");
  EXPECT_EQ(sse("e", Json{{"a", 1}}), "event: e\ndata: {\"a\":1}\n\n");
}

}  // namespace
}  // namespace ktx::server

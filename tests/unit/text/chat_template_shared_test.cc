// Real templates: the renderings by Jinja2 in ../shared/templates, and the prompts
// of the test models' references.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/text/chat_template/chat_case.h"
#include "lib/text/chat_template/chat_template.h"
#include "lib/text/chat_template/template_probe.h"
#include "tests/support/paths.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

RenderInput base_input() {
  RenderInput base;
  base.bos_token = "<s>";
  base.eos_token = "</s>";
  base.now = *parse_time("2026-01-02");
  return base;
}

TEST(ChatTemplateShared, RendersRealTemplatesAsJinja2) {
  const fs::path folder = shared_dir() + "/templates";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is missing";
  const Json expected = Json::parse(read_file(folder / "expected.json"));
  int rendered = 0;
  for (const auto& [file, cases] : expected["expected"].items()) {
    const Result<ChatTemplate> chat = ChatTemplate::parse(read_file(folder / file));
    ASSERT_TRUE(chat.ok()) << file << ": " << chat.error().message;
    for (const auto& [name, want] : cases.items()) {
      const Result<std::string> prompt =
          render_chat_case(*chat, expected["cases"][name].dump(), base_input());
      if (want.contains("error")) continue;  // an error or a rendering
      ASSERT_TRUE(prompt.ok()) << file << " " << name << ": " << prompt.error().message;
      EXPECT_EQ(*prompt, want["ok"].get<std::string>()) << file << " " << name;
      ++rendered;
    }
  }
  EXPECT_GT(rendered, 60);
}

TEST(ChatTemplateShared, ProbesRealTemplates) {
  const fs::path folder = shared_dir() + "/templates";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is missing";
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const Result<ChatTemplate> chat = ChatTemplate::parse(read_file(entry.path()));
    ASSERT_TRUE(chat.ok()) << entry.path();
    const TemplateProbe probe = probe_template(*chat, "<s>", "</s>");
    EXPECT_TRUE(probe.user && probe.system && probe.assistant) << entry.path();
    const std::string name = entry.path().filename();
    if (name == "Qwen-Qwen3-0.6B.jinja" || name == "GLM-4.6.jinja") {
      EXPECT_EQ(probe.thinking_switch, "enable_thinking") << name;
      EXPECT_TRUE(probe.reasoning_content && probe.tools && probe.tool_calls) << name;
    }
    EXPECT_EQ(probe.opens_thinking, name == "llama-cpp-deepseek-r1.jinja") << name;
    if (name.starts_with("mistralai")) {
      EXPECT_TRUE(probe.alternation);
      EXPECT_FALSE(probe.generation_prompt);
    }
  }
}

TEST(ChatTemplateShared, RendersTheTestModelsPrompts) {
  const fs::path folder = shared_dir() + "/models";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is missing";
  int models = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    ++models;
    const Json config = Json::parse(read_file(entry.path() / "tokenizer_config.json"));
    const auto chat = ChatTemplate::parse(config["chat_template"].get<std::string>());
    ASSERT_TRUE(chat.ok()) << entry.path() << ": " << chat.error().message;
    EXPECT_TRUE(probe_template(*chat, "<s>", "</s>").user) << entry.path();
    const Json reference = Json::parse(read_file(entry.path() / "reference.json"));
    for (const Json& c : reference["cases"]) {
      RenderInput input;
      input.messages = c["messages"];
      input.tools = c["tools"];
      if (config.contains("bos_token")) input.bos_token = config["bos_token"].get<std::string>();
      if (config.contains("eos_token")) input.eos_token = config["eos_token"].get<std::string>();
      // The deepseek3 model answers with its thoughts; its prompts open them.
      if (entry.path().filename() == "deepseek3") input.extra["reasoning"] = true;
      const Result<std::string> prompt = chat->render(input);
      ASSERT_TRUE(prompt.ok()) << entry.path() << ": " << prompt.error().message;
      EXPECT_EQ(*prompt, c["prompt"].get<std::string>()) << entry.path();
    }
  }
  EXPECT_GE(models, 16);
}

}  // namespace
}  // namespace ktx::text

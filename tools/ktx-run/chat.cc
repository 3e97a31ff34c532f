// ktx-run chat: a conversation at a terminal.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/support/env.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"
#include "tools/ktx-run/answer.h"
#include "tools/ktx-run/chat_prompt.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/line_editor.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/talk.h"

namespace ktx::tools {
namespace {

constexpr const char* kBlockMark = "\"\"\"";

class Chat {
 public:
  Chat(const Options& options, LoadedModel& model, runtime::Session session)
      : options_(options), model_(model), session_(std::move(session)) {
    session_.keep_logits(false);
    reset();
  }

  int run() {
    const std::string home = env("HOME").value_or("");
    LineEditor editor(home.empty() ? "" : home + "/.ktx_history");
    if (editor.interactive()) {
      note(fmt::format("{}; /help lists the commands, Ctrl-D leaves",
                       model_.engine->plan().facts.name));
    }
    while (!leaving_) {
      const std::optional<std::string> text = read_message(editor);
      if (!text) break;
      if (trim(*text).empty()) continue;
      if (text->front() == '/')
        command(*text);
      else
        answer(*text);
    }
    return failed_ ? 1 : 0;
  }

 private:
  // One line; lines up to a closing """ after an opening one; or lines as long as
  // each ends with a backslash.
  std::optional<std::string> read_message(LineEditor& editor) {
    std::optional<std::string> line = editor.read("> ");
    if (!line) return std::nullopt;
    std::string text = *line;
    if (text.rfind(kBlockMark, 0) == 0) {
      text.erase(0, 3);
      while (text.find(kBlockMark) == std::string::npos) {
        line = editor.read("... ");
        if (!line) break;
        text += "\n" + *line;
      }
      return text.substr(0, text.find(kBlockMark));
    }
    while (!text.empty() && text.back() == '\\') {
      text.back() = '\n';
      line = editor.read("... ");
      if (!line) break;
      text += *line;
    }
    return text;
  }

  void reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
    session_.truncate(0);
  }

  void problem(const std::string& message) {
    fail(message);
    failed_ = true;
  }

  void answer(const std::string& text) {
    messages_.push_back({"user", text});
    const Status status = try_answer();
    if (!status) {
      messages_.pop_back();
      problem(status.error().message);
    }
  }

  Status try_answer() {
    const std::vector<int32_t> prompt = model_.tokenizer.encode_prompt(
        KTX_TRY(render_chat(model_, messages_, options_.template_vars)));
    session_.reset_stats();
    const runtime::Outcome outcome =
        KTX_TRY(session_.set_prompt(prompt, [](int64_t, int64_t) { return !interrupted(); }));
    if (outcome == runtime::Outcome::Stopped) {
      take_interrupt();
      messages_.pop_back();
      return {};
    }
    if (outcome != runtime::Outcome::Ok) {
      return Error{
          fmt::format("the conversation has {} tokens, the context {}; /reset begins anew, or "
                      "start with --ctx {}",
                      prompt.size(), model_.engine->ctx(), prompt.size() * 2)};
    }
    AnswerOptions answer_options;
    answer_options.max_tokens = options_.max_tokens;
    answer_options.cancelled = interrupted;
    answer_options.on_text = [](const std::string& piece) {
      fmt::print("{}", piece);
      std::fflush(stdout);
    };
    const Answer result = KTX_TRY(run_answer(session_, model_.tokenizer, answer_options));
    fmt::print("\n");
    std::fflush(stdout);
    take_interrupt();
    if (result.finish == Finish::ContextFull) {
      note(
          fmt::format("the context of {} tokens is full: the answer ends here; /reset begins anew, "
                      "or start with --ctx {}",
                      model_.engine->ctx(), model_.engine->ctx() * 2));
    }
    messages_.push_back({"assistant", result.text});
    if (options_.stats) note(speed_line(session_.stats()));
    return {};
  }

  // --- commands ----------------------------------------------------------------

  struct Command {
    const char* name;
    const char* argument;
    const char* help;
    void (Chat::*run)(const std::string& argument);
  };
  static std::span<const Command> commands() {
    static constexpr Command kCommands[] = {
        {"/help", "", "show this list", &Chat::help},
        {"/reset", "", "forget the conversation", &Chat::reset_command},
        {"/file", "PATH", "send the text of a file as a message", &Chat::file},
        {"/save", "PATH", "write the session: conversation and cache", &Chat::save},
        {"/load", "PATH", "go on with a session that /save wrote", &Chat::load},
        {"/stats", "", "speeds of the last answer, and how full the context is", &Chat::stats},
        {"/exit", "", "leave (as does Ctrl-D)", &Chat::leave},
    };
    return kCommands;
  }

  void command(const std::string& text) {
    const size_t space = text.find(' ');
    const std::string name = text.substr(0, space);
    const std::string argument(space == std::string::npos
                                   ? std::string_view()
                                   : trim(std::string_view(text).substr(space)));
    std::vector<std::string> names;
    for (const Command& row : commands()) {
      names.emplace_back(row.name);
      if (name != row.name) continue;
      if (*row.argument && argument.empty()) {
        note(fmt::format("{} needs {}", row.name, row.argument));
      } else {
        (this->*row.run)(argument);
      }
      return;
    }
    note(fmt::format("no command '{}'{}", printable(name), did_you_mean(name, names)));
  }

  void help(const std::string&) {
    for (const Command& row : commands()) {
      note(fmt::format("  {:<12} {}", fmt::format("{} {}", row.name, row.argument), row.help));
    }
    note(
        "  \"\"\" opens and closes a message of several lines; a \\ at a line's end does so for "
        "one more");
    note("  Ctrl-C stops an answer");
  }
  void reset_command(const std::string&) { reset(); }
  void leave(const std::string&) { leaving_ = true; }
  void stats(const std::string&) {
    note(speed_line(session_.stats()));
    note(fmt::format("context: {} of {} tokens, {} threads, {}", session_.tokens().size(),
                     model_.engine->ctx(), model_.engine->threads(), name(model_.engine->isa())));
  }
  void file(const std::string& path) {
    Result<std::string> text = read_text_file(path);
    if (!text) return problem(text.error().message);
    answer(*text);
  }

  // A session file: the conversation as JSON in its note, and what was computed for it.
  void save(const std::string& path) {
    nlohmann::ordered_json json;
    json["ktx_conversation"] = 1;
    json["messages"] = nlohmann::ordered_json::array();
    for (const ChatMessage& message : messages_) {
      json["messages"].push_back({{"role", message.role}, {"content", message.content}});
    }
    const Status saved =
        session_.save(path, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    if (!saved) return problem(saved.error().message);
    note(fmt::format("{}: {} messages, {} tokens", path, messages_.size(),
                     session_.tokens().size()));
  }

  void load(const std::string& path) {
    const Result<std::string> text = session_.load(path);
    if (!text) return problem(text.error().message);
    const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
    const auto list = json.is_object() ? json.find("messages") : json.end();
    if (json.is_discarded() || !json.is_object() || list == json.end() || !list->is_array()) {
      return problem(fmt::format("{}: a session, but not one of chat", path));
    }
    std::vector<ChatMessage> messages;
    for (const nlohmann::json& item : *list) {
      if (!item.is_object() || !item.contains("role") || !item["role"].is_string() ||
          !item.contains("content") || !item["content"].is_string()) {
        return problem(fmt::format("{}: a message needs a role and a content", path));
      }
      messages.push_back({item["role"], item["content"]});
    }
    messages_ = std::move(messages);
    note(fmt::format("{}: {} messages, {} tokens", path, messages_.size(),
                     session_.tokens().size()));
  }

  const Options& options_;
  LoadedModel& model_;
  runtime::Session session_;
  std::vector<ChatMessage> messages_;
  bool leaving_ = false;
  bool failed_ = false;
};

}  // namespace

int run_chat(const Options& options) {
  Result<LoadedModel> model = load_model(options.plan, options.engine);
  if (!model) return fail(model.error().message);
  for (const std::string& line : model->engine->notes()) note(line);
  Result<runtime::Sampler> sampler =
      runtime::Sampler::create(sampling_options(options.sampling), model->engine->vocab_size());
  if (!sampler) return fail(sampler.error().message);
  if (!model->chat_template) {
    return fail(
        fmt::format("{}: the model has no chat template that works; `ktx-run generate "
                    "--prompt` takes plain text",
                    options.plan));
  }
  catch_interrupts();
  return Chat(options, *model, runtime::Session(*model->engine, sampler.take())).run();
}

}  // namespace ktx::tools

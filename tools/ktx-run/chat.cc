// ktx-run chat: a conversation at a terminal.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "lib/server/filters/reasoning_budget.h"
#include "lib/support/env.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"
#include "tools/ktx-run/answer.h"
#include "tools/ktx-run/answer_view.h"
#include "tools/ktx-run/chat_prompt.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/conversation.h"
#include "tools/ktx-run/expert_record.h"
#include "tools/ktx-run/image_files.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/line_editor.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/path_argument.h"
#include "tools/ktx-run/report.h"

namespace ktx::tools {
namespace {

constexpr const char* kBlockMark = "\"\"\"";

class Chat {
 public:
  // `viewer`: null where the model takes no images.
  Chat(const Options& options, LoadedModel& model, vision::Viewer* viewer, runtime::Session session)
      : options_(options), model_(model), viewer_(viewer), session_(std::move(session)) {
    session_.speculate(model.speculation.get());
    session_.keep_logits(false);
    session_.end_messages_at([&model](int32_t id) { return model.tokenizer.is_eog(id); });
    form_ = server::reasoning_form(model.tokenizer, model.chat_template->source());
    reset();
  }

  int run() {
    const std::string home = env("HOME").value_or("");
    LineEditor editor(home.empty() ? "" : home + "/.ktx_history");
    interactive_ = editor.interactive();
    if (interactive_) {
      // Messages that come by a pipe are a script: Ctrl-C ends it.
      catch_interrupts(SecondInterrupt::Nothing);
      note(fmt::format("{}; /help lists the commands, Ctrl-D leaves",
                       model_.engine->plan().facts.name));
    }
    while (!leaving_) {
      const std::optional<std::string> text = read_message(editor);
      if (!text) break;
      if (trim(*text).empty()) continue;
      if (is_command(*text))
        command(*text);
      else
        answer(*text);
    }
    return failed_ ? 1 : 0;
  }

 private:
  // One line; lines up to a closing """ after an opening one; or lines as long as
  // each ends with a backslash. What was pasted with newlines in it is a message as it is.
  // Nothing at the end of input; "" where Ctrl-C dropped what was being written.
  std::optional<std::string> read_message(LineEditor& editor) {
    InputLine line = editor.read("> ");
    if (line.kind == InputLine::End) return std::nullopt;
    if (line.kind == InputLine::Cancelled) {
      if (line.text.empty()) note("Ctrl-D or /bye leaves");
      return "";
    }
    std::string text = line.text;
    if (text.find('\n') != std::string::npos) return text;
    if (text.rfind(kBlockMark, 0) == 0) {
      text.erase(0, 3);
      while (text.find(kBlockMark) == std::string::npos) {
        line = editor.read("... ");
        if (line.kind == InputLine::Cancelled) return "";
        if (line.kind == InputLine::End) break;
        text += "\n" + line.text;
      }
      return text.substr(0, text.find(kBlockMark));
    }
    while (!text.empty() && text.back() == '\\') {
      text.back() = '\n';
      line = editor.read("... ");
      if (line.kind == InputLine::Cancelled) return "";
      if (line.kind == InputLine::End) break;
      text += line.text;
    }
    return text;
  }

  // "/help", but no path, comment or text of several lines.
  static bool is_command(std::string_view text) {
    if (text.front() != '/' || text.find('\n') != text.npos) return false;
    const std::string_view word = text.substr(1, text.find(' ') - 1);
    return std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalpha(static_cast<unsigned char>(c)) || c == '?';
    });
  }

  void reset() {
    images_.clear();
    conversation_.reset(options_.system);
    session_.truncate(0);
  }

  // A user has seen the error; a script learns of it by the exit status.
  void problem(const std::string& message) {
    fail(message);
    failed_ = !interactive_;
  }

  void answer(const std::string& text) {
    std::vector<runtime::ReadImage> images = std::exchange(images_, {});
    conversation_.add("user", text, images);
    const Status status = try_answer();
    if (!status) {
      conversation_.take_back();
      images_ = std::move(images);
      problem(status.error().message);
    }
  }

  // The room that an answer should find: --on-full=drop makes it.
  int64_t room_for_answer() const {
    const int64_t quarter = model_.engine->ctx() / 4;
    return options_.max_tokens < 0 ? quarter : std::min(options_.max_tokens, quarter);
  }

  // What to do about a full context.
  std::string ways_out(int64_t larger_ctx) const {
    return fmt::format("/drop forgets the oldest turn, /reset all, or start with --ctx {}{}",
                       larger_ctx, options_.drop_when_full ? "" : " or --on-full=drop");
  }

  struct Prompt {
    Conversation conversation;  // as it is once the prompt is computed
    size_t dropped = 0;         // messages that it lacks
    std::string text;
    vision::ImagePrompt shown;
    const std::vector<int32_t>& ids() const { return shown.ids; }
    int64_t tokens() const { return std::ssize(shown.ids); }
  };
  Status render(Prompt& prompt) const {
    text::MarkedText rendered =
        KTX_TRY(render_chat(model_, prompt.conversation.messages(), options_.template_vars));
    prompt.text = rendered.text;
    prompt.shown = KTX_TRY(encode_chat(model_, std::move(rendered), prompt.conversation.messages(),
                                       options_.allow_control_tokens));
    return {};
  }
  // The conversation itself loses nothing here: a prompt may still be too long, or stopped.
  Result<Prompt> make_prompt() const {
    Prompt prompt = {conversation_, 0, {}, {}};
    while (true) {
      KTX_TRY(render(prompt));
      const bool fits = prompt.tokens() + room_for_answer() <= model_.engine->ctx();
      if (fits || !options_.drop_when_full) return prompt;
      const size_t went = prompt.conversation.drop_oldest_turn();
      if (went == 0) return prompt;
      prompt.dropped += went;
    }
  }

  // /drop does not help where the last message alone is longer than the context.
  Error too_long(Prompt prompt) const {
    const int64_t larger_ctx = prompt.tokens() * 2;
    const std::string whole =
        fmt::format("the conversation has {} tokens, the context {}; {}", prompt.tokens(),
                    model_.engine->ctx(), ways_out(larger_ctx));
    while (prompt.conversation.drop_oldest_turn() > 0) {
    }
    if (const Status rendered = render(prompt); !rendered) return Error{whole};
    if (prompt.tokens() <= model_.engine->ctx()) return Error{whole};
    return Error{
        fmt::format("the message alone has {} tokens, the context {}; shorten it, or "
                    "start with --ctx {}",
                    prompt.tokens(), model_.engine->ctx(), larger_ctx)};
  }

  // Nothing where there is none, or nothing that it could end.
  std::optional<server::ReasoningBudget> reasoning_budget(const Prompt& prompt) const {
    if (options_.reasoning.budget < 0) return std::nullopt;
    const bool open = form_.tags && text::prompt_opens_reasoning(prompt.text, *form_.tags);
    auto watch = server::ReasoningWatch::create(model_.tokenizer, form_, prompt.ids(), open);
    if (!watch) return std::nullopt;
    return std::optional<server::ReasoningBudget>(
        std::in_place, model_.tokenizer, std::move(*watch),
        server::ReasoningLimit{options_.reasoning.budget, options_.reasoning.message}, nullptr);
  }

  Status try_answer() {
    const Prompt prompt = KTX_TRY(make_prompt());
    session_.reset_stats();
    session_.show_images(prompt.shown.images);
    const runtime::Outcome outcome = KTX_TRY(set_prompt_with_progress(session_, prompt.ids()));
    if (outcome == runtime::Outcome::Stopped) {
      take_interrupt();
      conversation_.take_back();
      note("stopped; the message was not answered and is forgotten");
      return {};
    }
    if (outcome != runtime::Outcome::Ok) return too_long(prompt);
    if (prompt.dropped > 0) {
      conversation_ = prompt.conversation;
      note(fmt::format("the context of {} tokens is full: the oldest {} messages were dropped",
                       model_.engine->ctx(), prompt.dropped));
    }
    AnswerView view = form_.harmony
                          ? AnswerView(server::begin_harmony(model_.tokenizer, prompt.ids(), {}))
                          : AnswerView(form_.tags, prompt.text);
    std::optional<server::ReasoningBudget> budget = reasoning_budget(prompt);
    AnswerOptions answer_options;
    answer_options.budget = budget ? &*budget : nullptr;
    answer_options.on_control = [&](std::string_view token) { return view.marker(token); };
    answer_options.max_tokens = options_.max_tokens;
    answer_options.cancelled = interrupted;
    answer_options.on_text = [&](const std::string& piece) { view.add(piece); };
    const Result<Answer> result = run_answer(session_, model_.tokenizer, answer_options);
    view.finish();
    take_interrupt();
    if (!result) return result.error();
    conversation_.add("assistant", view.message(result->text));
    if (result->finish == Finish::Length) {
      note(fmt::format("the answer was cut off after {} tokens (-n)", options_.max_tokens));
    }
    if (result->finish == Finish::ContextFull) {
      note(fmt::format("the context of {} tokens is full: the answer ends here; {}",
                       model_.engine->ctx(), ways_out(model_.engine->ctx() * 2)));
    }
    if (options_.stats) note(speed_line(session_.stats()));
    return {};
  }

  // --- commands ----------------------------------------------------------------

  struct Command {
    const char* name;
    std::vector<const char*> others;  // names that people know from elsewhere
    const char* argument;
    const char* help;
    void (Chat::*run)(const std::string& argument);
  };
  static const std::vector<Command>& commands() {
    static const std::vector<Command> kCommands = {
        {"/help", {"/?"}, "", "show this list", &Chat::help},
        {"/reset", {"/clear"}, "", "forget the conversation", &Chat::reset_command},
        {"/drop", {}, "", "forget the oldest question and its answer", &Chat::drop},
        {"/file", {}, "PATH", "send the text of a file as a message", &Chat::file},
        {"/image", {}, "PATH", "show an image with the next message", &Chat::image},
        {"/save", {}, "PATH", "write the session: conversation and cache", &Chat::save},
        {"/load", {}, "PATH", "go on with a session that /save wrote", &Chat::load},
        {"/stats", {}, "", "speeds of the last answer, and how full the context is", &Chat::stats},
        {"/exit", {"/bye", "/quit"}, "", "leave (as does Ctrl-D)", &Chat::leave},
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
      std::vector<std::string> own = {row.name};
      own.insert(own.end(), row.others.begin(), row.others.end());
      names.insert(names.end(), own.begin(), own.end());
      if (std::find(own.begin(), own.end(), name) == own.end()) continue;
      if (*row.argument && argument.empty()) {
        problem(fmt::format("{} needs {}", row.name, row.argument));
      } else {
        (this->*row.run)(*row.argument ? path_argument(argument) : argument);
      }
      return;
    }
    const std::string near = did_you_mean(name, names);
    problem(fmt::format("no command '{}'{}", printable(name),
                        near.empty() ? "; /help lists them" : near));
  }

  void help(const std::string&) {
    for (const Command& row : commands()) {
      const std::string others = fmt::format("{}", fmt::join(row.others, ", "));
      note(fmt::format("  {:<12} {}{}", fmt::format("{} {}", row.name, row.argument), row.help,
                       others.empty() ? "" : fmt::format(" (also {})", others)));
    }
    note(
        "  a pasted text is one message; for a new line press Alt-Enter, end the line with \\, or "
        "write the message between \"\"\" and \"\"\"");
    note("  Ctrl-C stops an answer, or discards the line being typed");
  }
  void reset_command(const std::string&) { reset(); }
  void drop(const std::string&) {
    const size_t dropped = conversation_.drop_oldest_turn();
    note(dropped == 0
             ? std::string("there is nothing to drop")
             : fmt::format("dropped {} messages, {} are left", dropped, conversation_.size()));
  }
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

  void image(const std::string& path) {
    if (viewer_ == nullptr) {
      return problem(
          fmt::format("{} reads text only; where there is a projector for it (mmproj), "
                      "compile it with that: ktx-compile --mmproj FILE",
                      model_.engine->plan().facts.name));
    }
    Result<runtime::ReadImage> seen = viewer_->look_at(path);
    if (!seen) return problem(seen.error().message);
    note(fmt::format("{}: {} tokens, shown with the next message", path, seen->tokens));
    images_.push_back(seen.take());
  }

  // A session file: the conversation as JSON in its note, and what was computed for it.
  void save(const std::string& path) {
    const Status saved = session_.save(path, conversation_.to_json());
    if (!saved) return problem(saved.error().message);
    note(fmt::format("{}: {} messages, {} tokens", path, conversation_.size(),
                     session_.tokens().size()));
  }

  void load(const std::string& path) {
    const Result<std::string> text = session_.load(path);
    if (!text) return problem(text.error().message);
    if (const Status read = conversation_.from_json(*text); !read) {
      return problem(fmt::format("{}: {}", path, read.error().message));
    }
    note(fmt::format("{}: {} messages, {} tokens", path, conversation_.size(),
                     session_.tokens().size()));
  }

  const Options& options_;
  LoadedModel& model_;
  vision::Viewer* const viewer_;
  runtime::Session session_;
  Conversation conversation_;
  std::vector<runtime::ReadImage> images_;  // of the next message
  server::ReasoningForm form_;
  bool interactive_ = false;
  bool leaving_ = false;
  bool failed_ = false;
};

}  // namespace

int run_chat(const Options& options) {
  Result<ExpertRecord> record = ExpertRecord::open(options.engine.record_experts);
  if (!record) return fail(record.error().message);
  Result<LoadedModel> model = load_model(options.plan, options.engine, options.draft);
  if (!model) return fail(model.error().message);
  if (const Status yes = check_generates(options.plan, model->engine->plan().facts); !yes) {
    return fail(yes.error().message);
  }
  for (const std::string& line : model->notes) note(line);
  Result<runtime::Sampler> sampler =
      runtime::Sampler::create(sampling_options(options.sampling), model->engine->vocab_size());
  if (!sampler) return fail(sampler.error().message);
  if (const Status chosen = choose_template(options.plan, options.chat_template, *model); !chosen) {
    return fail(chosen.error().message);
  }
  std::unique_ptr<vision::Viewer> viewer;
  if (model->engine->plan().facts.takes_images) {
    auto opened = open_viewer(*model, options.plan, options.engine);
    if (!opened) return fail(opened.error().message);
    viewer = opened.take();
  }
  const int status =
      Chat(options, *model, viewer.get(),
           runtime::Session(*model->engine, sampler.take(), model->engine->own_lora()))
          .run();
  const Status saved = record->save(*model->engine);
  return saved ? status : fail(saved.error().message);
}

}  // namespace ktx::tools

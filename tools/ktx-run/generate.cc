// ktx-run generate: one prompt, one answer.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/support/piped_text.h"
#include "lib/support/timer.h"
#include "tools/ktx-run/answer.h"
#include "tools/ktx-run/answer_view.h"
#include "tools/ktx-run/chat_prompt.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/expert_record.h"
#include "tools/ktx-run/image_files.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/report.h"

namespace ktx::tools {
namespace {

// The text of a file as it is, that of a pipe without one newline at its end, which `echo` adds.
Result<std::string> prompt_text(const Options& options) {
  if (options.prompt) return *options.prompt;
  if (!options.prompt_file) return std::string();
  PipedText input = KTX_TRY(read_piped_text(*options.prompt_file));
  if (input.text.empty()) {
    return Error{fmt::format("{}: the text is empty", piped_text_name(*options.prompt_file))};
  }
  if (input.streamed && input.text.back() == '\n') input.text.pop_back();
  return std::move(input.text);
}

Result<vision::ImagePrompt> read_prompt(const Options& options, const std::string& text,
                                        const LoadedModel& model,
                                        const std::vector<runtime::ReadImage>& images) {
  if (options.prompt_ids) return vision::ImagePrompt{*options.prompt_ids, {}};
  if (!options.chat) {
    return vision::with_images(model.tokenizer, model.engine->plan().facts.image, {text, {}},
                               images);
  }
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", text, images});
  text::MarkedText prompt = KTX_TRY(render_chat(model, messages, options.template_vars));
  return encode_chat(model, std::move(prompt), messages, options.allow_control_tokens);
}

nlohmann::ordered_json to_json(const std::vector<int32_t>& prompt, const Answer& answer,
                               const LoadedModel& model, const runtime::SessionStats& stats) {
  nlohmann::ordered_json json;
  json["prompt_ids"] = prompt;
  json["ids"] = answer.ids;
  json["text"] = answer.text;
  json["finish_reason"] = finish_reason(answer.finish);
  json["steps"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < answer.logprobs.size(); ++i) {
    nlohmann::ordered_json top = nlohmann::ordered_json::array();
    for (const runtime::TokenLogprob& item : answer.logprobs[i].top) {
      top.push_back({item.id, item.logprob});
    }
    json["steps"].push_back(
        {{"id", answer.ids[i]}, {"logprob", answer.logprobs[i].logprob}, {"top", top}});
  }
  json["timings"] = {{"load_seconds", model.load_seconds},
                     {"prompt_tokens", stats.prompt_tokens},
                     {"prompt_seconds", stats.prompt_seconds},
                     {"prompt_tokens_per_second", stats.prompt_rate()},
                     {"decode_tokens", stats.decode_tokens},
                     {"decode_seconds", stats.decode_seconds},
                     {"decode_tokens_per_second", stats.decode_rate()}};
  if (model.speculation) {
    json["timings"]["draft_tokens"] = stats.drafted_tokens;
    json["timings"]["accepted_tokens"] = stats.accepted_tokens;
  }
  return json;
}

bool speaks_harmony(const LoadedModel& model) {
  return server::reasoning_form(model.tokenizer, model.chat_template->source()).harmony;
}

// True when Ctrl-C ended it.
Result<bool> generate(const Options& options) {
  const std::string text = KTX_TRY(prompt_text(options));
  ExpertRecord record = KTX_TRY(ExpertRecord::open(options.engine.record_experts));
  LoadedModel model = KTX_TRY(load_model(options.plan, options.engine, options.draft));
  KTX_TRY(check_generates(options.plan, model.engine->plan().facts));
  if (options.chat) KTX_TRY(choose_template(options.plan, options.chat_template, model));
  for (const std::string& line : model.notes) note(line);
  std::vector<runtime::ReadImage> images;
  if (!options.images.empty()) {
    const auto viewer = KTX_TRY(open_viewer(model, options.plan, options.engine));
    for (const std::string& file : options.images) {
      images.push_back(KTX_TRY(viewer->look_at(file)));
    }
  }
  const vision::ImagePrompt shown = KTX_TRY(read_prompt(options, text, model, images));
  const std::vector<int32_t>& prompt = shown.ids;
  if (prompt.empty()) return Error{"the prompt is empty; the model needs at least one token"};
  runtime::Session session(*model.engine,
                           KTX_TRY(runtime::Sampler::create(sampling_options(options.sampling),
                                                            model.engine->vocab_size())),
                           model.engine->own_lora());
  session.speculate(model.speculation.get());
  session.show_images(shown.images);
  session.keep_logits(options.json && options.logprobs >= 0);
  catch_interrupts(SecondInterrupt::Ends);
  const runtime::Outcome outcome = KTX_TRY(set_prompt_with_progress(session, prompt));
  if (outcome == runtime::Outcome::Stopped) return true;
  if (outcome != runtime::Outcome::Ok) {
    return Error{fmt::format("the prompt has {} tokens, the context {}; a larger one: --ctx {}",
                             prompt.size(), model.engine->ctx(), prompt.size() + 1024)};
  }
  AnswerOptions answer_options;
  answer_options.max_tokens = options.max_tokens;
  // finish.h says why nothing more can be printed.
  answer_options.cancelled = [] { return interrupted() || std::ferror(stdout) != 0; };
  // In the harmony form an answer is messages, of which a chat shows the content.
  std::optional<AnswerView> view;
  if (options.json) {
    answer_options.logprobs = options.logprobs;
  } else if (options.chat && speaks_harmony(model)) {
    view.emplace(server::begin_harmony(model.tokenizer, prompt, {}));
    answer_options.on_text = [&](const std::string& piece) { view->add(piece); };
    answer_options.on_control = [&](std::string_view token) { return view->marker(token); };
  } else {
    answer_options.on_text = [](const std::string& piece) {
      fmt::print("{}", piece);
      std::fflush(stdout);
    };
  }
  const Answer answer = KTX_TRY(run_answer(session, model.tokenizer, answer_options));
  KTX_TRY(record.save(*model.engine));
  if (options.json) {
    fmt::print("{}\n", to_json(prompt, answer, model, session.stats())
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (view) {
    view->finish();
  } else {
    fmt::print("\n");
  }
  if (answer.finish == Finish::Cancelled) return interrupted();
  if (answer.finish == Finish::ContextFull) {
    note(fmt::format("the context of {} tokens is full; a larger one: --ctx {}",
                     model.engine->ctx(), model.engine->ctx() * 2));
  }
  if (model.speculation && !model.speculation->failure().empty()) {
    note(fmt::format("speculative decoding was switched off: {}", model.speculation->failure()));
  }
  if (options.stats) note(speed_line(session.stats()));
  return false;
}

}  // namespace

int run_generate(const Options& options) {
  const Result<bool> ended = generate(options);
  if (!ended) return fail(ended.error().message);
  return *ended ? end_interrupted() : 0;
}

}  // namespace ktx::tools

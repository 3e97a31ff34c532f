// Ollama's endpoint that fetches a model. A model that is here counts as up to date.
#include <mutex>
#include <utility>

#include "lib/server/endpoints.h"
#include "lib/server/models/model_fetches.h"
#include "lib/server/models/no_download.h"
#include "lib/server/ollama/ollama_format.h"

namespace ktx::server {
namespace {

// The answer to one client: lines of progress, or only the end.
class PullAnswer {
 public:
  PullAnswer(HttpReplyPtr reply, bool streams) : reply_(std::move(reply)), streams_(streams) {}

  // A fetch is about to begin: the first line says so, whichever thread writes it.
  void announce() { announces_ = streams_; }
  void show_announced() {
    const std::lock_guard lock(mutex_);
    begin();
  }
  void show(const FetchProgress& progress) {
    if (!streams_) return;
    Json json = {{"status", progress.status}};
    if (!progress.digest.empty()) json["digest"] = progress.digest;
    if (progress.total > 0) {
      json["total"] = progress.total;
      json["completed"] = progress.completed;
    }
    const std::lock_guard lock(mutex_);
    begin();
    write(json);
  }
  // As with Ollama, an error behind the first line is a line of the stream.
  void end(const ApiStatus& ended) {
    if (!streams_ && !ended) return send_ollama_error(*reply_, ended.error());
    const Json json = ended ? Json{{"status", "success"}} : Json{{"error", ended.error().message}};
    if (!ended) reply_->set_error(ended.error().message);
    if (!streams_) return reply_->send(200, "application/json", dump(json));
    const std::lock_guard lock(mutex_);  // to the end: nothing follows the last line
    begin();
    write(json);
    reply_->end();
  }

 private:
  void begin() {
    if (streams_ && !reply_->begun()) reply_->begin(200, "application/x-ndjson");
    if (std::exchange(announces_, false)) write({{"status", "pulling manifest"}});
  }
  void write(const Json& json) { reply_->write(dump(json) + "\n"); }

  const HttpReplyPtr reply_;
  const bool streams_;
  bool announces_ = false;
  std::mutex mutex_;
};

}  // namespace

ApiStatus post_ollama_pull(const ServerContext& context, const HttpRequest& request,
                           const HttpReplyPtr& reply) {
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const std::string typed = in.text("model", in.text("name"));
  const bool streams = in.flag("stream", true);
  KTX_TRY(in.status());
  const auto answer = std::make_shared<PullAnswer>(reply, streams);
  if (context.models->knows(typed)) {
    answer->end({});
    return {};
  }
  if (!context.fetches) return no_download(typed);
  KTX_TRY(context.may_change);
  const std::string name = KTX_TRY(context.fetches->name(typed));
  if (context.models->knows(name)) {
    answer->end({});
    return {};
  }
  FetchFollower follower;
  follower.progress = [answer](const FetchProgress& progress) { answer->show(progress); };
  follower.ended = [answer, models = context.models](const ApiStatus& ended) {
    if (ended) models->list(true);  // from now on it is offered
    answer->end(ended);
  };
  answer->announce();
  const auto leave = KTX_TRY(context.fetches->follow(name, context.owner, std::move(follower)));
  // One that follows later learns at once that it is heard.
  answer->show_announced();
  reply->on_gone(leave);
  return {};
}

}  // namespace ktx::server

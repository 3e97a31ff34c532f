// Ollama's endpoint that fetches a model. A model that is here counts as up to date.
#include <mutex>

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

  void show(const FetchProgress& progress) {
    if (!streams_) return;
    Json json = {{"status", progress.status}};
    if (!progress.digest.empty()) json["digest"] = progress.digest;
    if (progress.total > 0) {
      json["total"] = progress.total;
      json["completed"] = progress.completed;
    }
    write(json);
  }
  // As with Ollama, an error behind the first line is a line of the stream.
  void end(const ApiStatus& ended) {
    if (!streams_ && !ended) return send_ollama_error(*reply_, ended.error());
    const Json json = ended ? Json{{"status", "success"}} : Json{{"error", ended.error().message}};
    if (!ended) reply_->set_error(ended.error().message);
    if (!streams_) return reply_->send(200, "application/json", dump(json));
    write(json);
    reply_->end();
  }

 private:
  // The fetch may have something to say before the endpoint has.
  void write(const Json& json) {
    const std::lock_guard lock(mutex_);
    if (!reply_->begun()) reply_->begin(200, "application/x-ndjson");
    reply_->write(dump(json) + "\n");
  }

  const HttpReplyPtr reply_;
  const bool streams_;
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
  // One that follows later learns at once that it is heard.
  const auto leave = KTX_TRY(context.fetches->follow(name, context.owner, std::move(follower)));
  answer->show({"pulling manifest"});
  reply->on_gone(leave);
  return {};
}

}  // namespace ktx::server

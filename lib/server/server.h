// The server: HTTP, the table of routes, and the models.
//
//   Server server(options);
//   KTX_TRY(server.start());              // /health says 503, all else too
//   server.set_models(models);            // from here on it answers
//   ...
//   server.drain(std::chrono::seconds(30));
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lib/runtime/scheduler/key_quota.h"
#include "lib/server/access.h"
#include "lib/server/answer/kept_streams.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/http_server.h"
#include "lib/server/key_limits.h"
#include "lib/server/models/model_fetches.h"
#include "lib/server/models/model_store.h"
#include "lib/server/server_figures.h"
#include "lib/support/line_file.h"
#include "lib/support/result.h"

namespace ktx::server {

struct ServerOptions {
  HttpOptions http;
  AccessOptions access;
  std::string slot_dir;
  int64_t request_seconds = 0;
  bool web_ui = true;
  bool show_slots = true;      // GET /slots
  bool public_models = false;  // GET /models needs no key
  bool edit_models = false;    // plans of folders may be copied and deleted
  // Null: clients may fetch no models. Ended by drain().
  std::shared_ptr<ModelFetches> fetches;
  std::string access_log;  // a file, "-" for stderr, "" for none
  std::string commit;      // of the program, for /metrics
  // Why no request can be answered any more, "": nothing has failed; may be empty. Any thread calls
  // it.
  std::function<std::string()> failure;
};

class Server {
 public:
  explicit Server(ServerOptions options);
  ~Server();  // ends what still runs, also the model's scheduler

  Status start();
  void set_models(std::shared_ptr<ModelStore> models);
  void set_model(std::shared_ptr<ServedModel> model);  // one that stays
  // Other keys from now on; requests that run end as they would have.
  void set_keys(std::vector<ApiKey> keys);
  uint16_t port() const { return http_.port(); }

  // Takes no more requests, waits for those that run, cancels them after `limit`.
  // False: some had to be cancelled.
  bool drain(std::chrono::milliseconds limit);

  // Opens the access log again (it may have been moved away) and reads the certificate again. On
  // failure what was there before stays.
  Status open_log();
  Status reload_certificate() { return http_.reload_certificate(); }

  // Fails when lines of the access log could not be written.
  Status log_state();

  // For tests without a socket.
  void handle(const HttpRequest& request, const HttpReplyPtr& client);

 private:
  // What needs no body: key, host, path, method, and whether there is a model. False: it has
  // answered.
  bool admit(const HttpRequest& request, const HttpReplyPtr& reply);
  ServerContext context();
  // Memory for a request that waits; null: it has been refused, as such requests have too much.
  std::shared_ptr<void> hold_bytes(int64_t bytes, const HttpRequest& request,
                                   const std::string& key, const HttpReplyPtr& reply);
  // The request, for later; null: it has been refused, as such requests have too many bytes.
  std::shared_ptr<const HttpRequest> keep(const HttpRequest& request, const std::string& key,
                                          const HttpReplyPtr& reply);
  std::shared_ptr<ImageAsker> asker_of(const ServerContext& context);
  // `kept`: the request, where it waited already; null: it did not.
  void answer(const Route& route, ServerContext context, const HttpRequest& request,
              const HttpReplyPtr& reply, const std::shared_ptr<const HttpRequest>& kept = nullptr);
  void answer_with_images(const Route& route, const ServerContext& context,
                          const HttpRequest& request, const HttpReplyPtr& reply,
                          std::shared_ptr<const HttpRequest> kept);
  void answer_now(const Route& route, const ServerContext& context, const HttpRequest& request,
                  const HttpReplyPtr& reply);
  void answer_when_loaded(const Route& route, const ServerContext& context,
                          const std::string& model, const HttpRequest& request,
                          const HttpReplyPtr& reply);
  std::shared_ptr<const AccessOptions> access() const;
  void log(const HttpLogEntry& entry);

  const ServerOptions options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const AccessOptions> access_;  // with the keys of now
  std::shared_ptr<ModelStore> models_;
  KeptStreams streams_;
  runtime::KeyQuota kept_bytes_;  // of requests that wait for a model or for their images
  runtime::KeyQuota looking_;     // requests whose images are looked at
  bool draining_ = false;
  KeyLimits limits_;
  ServerFigures figures_;
  std::atomic<uint64_t> requests_ = 0;  // that were handled
  std::mutex log_mutex_;
  std::optional<LineFile> log_;
  HttpServer http_;  // last: its threads call the rest
};

}  // namespace ktx::server

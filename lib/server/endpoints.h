// The endpoints: one function each, listed in routes.def.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lib/server/answer/kept_streams.h"
#include "lib/server/http/api_error.h"
#include "lib/server/http/http_server.h"
#include "lib/server/models/model_store.h"
#include "lib/server/models/served_model.h"
#include "lib/server/request/image_asker.h"

namespace ktx::server {

class ModelFetches;
class ServerFigures;

// What an endpoint may use besides the request.
struct ServerContext {
  ModelLease model;                       // of routes that need one; null for others
  std::shared_ptr<ModelStore> models;     // null while the only one is loading
  std::shared_ptr<ModelFetches> fetches;  // null: clients may fetch no models
  KeptStreams* streams = nullptr;
  const ServerFigures* figures = nullptr;
  std::string commit;  // of the program
  std::function<HttpCounts()> http_counts;
  std::string slot_dir;               // where /slots saves; "": nowhere
  std::string owner;                  // of the request (owner_of), "" where there are no keys
  std::shared_ptr<ImageAsker> asker;  // of routes that need a model
  std::function<ApiStatus(int64_t tokens)> pay_images;  // ImageAsker::pay
  runtime::LoraChoice lora;                             // what the request's model name chooses
  runtime::ShareOf share;                               // whose part of the batch its answers take
  int64_t request_seconds = 0;                          // limit of one answer; 0: none
  bool draining = false;
  std::string failure;  // why nothing can be answered any more; "": nothing has failed
  bool show_slots = true;
  ApiStatus may_change;  // whether the request may change what other keys get
  ApiStatus may_edit;    // and copy and delete plans
};

// An error that it returns is sent in the form of its protocol (send_in_shape).
using Endpoint = ApiStatus (*)(const ServerContext& context, const HttpRequest& request,
                               const HttpReplyPtr& reply);

#define KTX_ROUTE(method, path, function, access, speed, model) \
  ApiStatus function(const ServerContext&, const HttpRequest&, const HttpReplyPtr&);
#include "lib/server/routes.def"

// The table, looked up. A path ending in '*' stands for all that begin so.
struct Route {
  const char* method;
  const char* path;
  Endpoint endpoint;
  bool open;   // no key needed
  bool quick;  // runs on the I/O thread
  bool model;  // works on the model that the request names, which is loaded for it
};
struct RouteMatch {
  const Route* route = nullptr;
  std::string allow;  // the methods of a known path: "GET, HEAD"
};
RouteMatch find_route(const HttpRequest& request);
// "; did you mean '/v1/messages'?" for a path that is unknown, such as /v1/v1/messages, or "".
std::string near_route(const std::string& path);

// The error as clients of the request's protocol read it.
void send_in_shape(const HttpRequest& request, HttpReply& reply, const ApiError& error);
// With status 200.
void send_json(const HttpReplyPtr& reply, const nlohmann::ordered_json& json);

}  // namespace ktx::server

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "envelope/http/endpoint.h"
#include "platform/http_client/client.h"
#include "publisher/dispatch/dispatcher.h"

namespace lockstep::publisher {

// The code of a row that an endpoint refused (4xx), docs/errors.md.
inline constexpr char kHttpRefused[] = "HTTP.REFUSED";

// Sends rows to one URL: those of a key one after another, keys side by side as far as the client
// lets them. What an answer means is http::Judge's to say. Safe from any thread; answers come on
// the client's.
class HttpDispatcher : public Dispatcher {
 public:
  // `client` outlives it, or is stopped before it ends: then nothing is under way. `name`: as rows
  // and people know the route.
  HttpDispatcher(std::string name, std::shared_ptr<envelope::Endpoint> endpoint,
                 http::Client& client);
  ~HttpDispatcher() override;

  void Dispatch(const std::string& table, const std::string& topic, std::vector<RowPtr> rows,
                Done done) override;

  // So many rows of a key that a request takes about half a second: what a stop or a crash finds
  // half done stays short, and a quick endpoint need not wait for the relay after every row.
  RequestShape Shape(const std::string& topic) const override;

 private:
  struct Shared;
  struct Batch;
  static void SendNext(const std::shared_ptr<Batch>& batch, size_t row, size_t end);

  const std::shared_ptr<Shared> shared_;  // with the requests under way
};

}  // namespace lockstep::publisher

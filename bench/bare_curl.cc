#include "bench/bare_curl.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace lockstep::bench {

double BareCurl(const std::string& url, int requests, int at_once, size_t bytes) {
  const std::string body(bytes, 'x');
  CURLM* const multi = curl_multi_init();
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");
  headers = curl_slist_append(headers, "Idempotency-Key: 00000000-0000-4000-8000-000000000000");
  std::vector<CURL*> easies;
  const auto discard = +[](char*, size_t size, size_t count, void*) { return size * count; };
  for (int i = 0; i < at_once; ++i) {
    CURL* const easy = easies.emplace_back(curl_easy_init());
    curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.data());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));  // NOLINT
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, discard);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  }
  const auto began = std::chrono::steady_clock::now();
  int sent = 0, done = 0;
  for (; sent < std::min(at_once, requests); ++sent) curl_multi_add_handle(multi, easies[sent]);
  while (done < requests) {
    int running = 0;
    curl_multi_perform(multi, &running);
    int left = 0;
    while (CURLMsg* const message = curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      CURL* const easy = message->easy_handle;
      curl_multi_remove_handle(multi, easy);
      ++done;
      if (sent < requests) {
        ++sent;
        curl_multi_add_handle(multi, easy);
      }
    }
    if (done < requests) curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  for (CURL* const easy : easies) curl_easy_cleanup(easy);
  curl_slist_free_all(headers);
  curl_multi_cleanup(multi);
  return requests / took.count();
}

}  // namespace lockstep::bench

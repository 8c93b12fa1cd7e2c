/* libcarat: Gemma 4 models in other programs.
 *
 *   carat_error* error = NULL;
 *   carat_engine* engine = carat_open("model.gguf", NULL, NULL, &error);
 *   carat_request* request = carat_chat(engine, "{\"messages\":[...],\"stream\":true}", NULL, NULL, &error);
 *   for (char* event; (event = carat_next(request, -1.0)) != NULL; carat_free(event)) puts(event);
 *   carat_release(request);
 *   carat_close(engine);
 *
 * Requests and events are JSON in the shape of OpenAI's API, the same that `carat serve` takes and sends:
 * docs/server.md has the fields. Texts are UTF-8 and end with a zero byte.
 *
 * Threads: an engine may be used from any number of threads at the same time, and so may different requests of it; one
 * request may be cancelled from any thread while another one reads it. carat_open() may run several times at once.
 * carat_close() and carat_release() end the life of what they are given: nobody may be using it, or use it afterwards.
 *
 * Errors: a function that fails returns NULL (or the value it names) and, where `error` is not NULL, puts a new error
 * there, which is freed with carat_error_free(). No exception leaves the library, and nothing is printed.
 *
 * Memory: what a function returns as char* or through int32_t** is the caller's, and is freed with carat_free().
 */
#ifndef CARAT_CARAT_H
#define CARAT_CARAT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CARAT_API __attribute__((visibility("default")))
#else
#define CARAT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct carat_engine carat_engine;
typedef struct carat_request carat_request;
typedef struct carat_error carat_error;

/* What kind of thing went wrong: the exit statuses of the program `carat`. */
enum {
  CARAT_BAD_ARGUMENT = 1,
  CARAT_FILE_ACCESS = 2,
  CARAT_DAMAGED_FILE = 3,
  CARAT_NOT_SUPPORTED = 4,
  CARAT_NO_MEMORY = 5,
  CARAT_DEVICE_FAILURE = 6,
  CARAT_NON_FINITE = 7,
  CARAT_INTERNAL_ERROR = 70,
  CARAT_INTERRUPTED = 130
};

CARAT_API int carat_error_code(const carat_error* error);
CARAT_API const char* carat_error_text(const carat_error* error); /* lives as long as the error */
CARAT_API void carat_error_free(carat_error* error);              /* NULL: nothing */
CARAT_API void carat_free(void* memory);                          /* NULL: nothing */

CARAT_API const char* carat_version(void); /* "0.1.0" */

/* Calls that a program may want while a model is loaded and run. Members that are NULL are not called. */
typedef struct carat_hooks {
  size_t size; /* sizeof(carat_hooks), so that later versions may have more members */
  void* user;  /* handed to each call */
  /* While weights are brought to a GPU, on the thread of carat_open(). */
  void (*progress)(uint64_t done, uint64_t total, void* user);
  /* What the library has to say: level 0 is information, 1 a warning, 2 an error. On any thread, one at a time. */
  void (*log)(int level, const char* text, void* user);
} carat_hooks;

/* Loads a model and starts its threads.
 *   model    a file, a name or hf:OWNER/REPO[:QUANT] as `carat run -m` takes; NULL: the demo model
 *   options  NULL, or a JSON object: "context" (tokens of each request; default the model's, at most 4096), "parallel"
 *            (requests at the same time; 4), "device" ("auto", "cpu", "gpu"), "threads", "gpu_layers", "kernels",
 *            "cache_type" ("f16", "q8_0"), "think" (bool), "alias", "itl_target" (milliseconds), "max_queue"
 *   hooks    NULL, or what is copied before the function returns */
CARAT_API carat_engine* carat_open(const char* model, const char* options, const carat_hooks* hooks,
                                   carat_error** error);
/* Ends what runs, and lets go of everything. Requests may be released before or after. NULL: nothing. */
CARAT_API void carat_close(carat_engine* engine);

/* The model as JSON: the object of GET /v1/models in docs/server.md. */
CARAT_API char* carat_model_info(carat_engine* engine, carat_error** error);
/* What was counted, in Prometheus's text format. */
CARAT_API char* carat_metrics(carat_engine* engine, carat_error** error);

/* The tokens of a text of `bytes` bytes, without <bos>. With `special` control-token texts become their tokens. Returns
 * 0, or -1 where it fails. */
CARAT_API int carat_tokenize(carat_engine* engine, const char* text, size_t bytes, int special, int32_t** tokens,
                             size_t* count, carat_error** error);
/* The text of tokens; `bytes` (may be NULL) gets its length. */
CARAT_API char* carat_detokenize(carat_engine* engine, const int32_t* tokens, size_t count, size_t* bytes,
                                 carat_error** error);

/* Called for each event of a request, in order, and once with NULL after the last one; never two at a time for one
 * request. It runs on threads of the library that have other things to do, perhaps before the function that made the
 * request returns. It may cancel its request, but not release it. */
typedef void (*carat_event_fn)(const char* event, void* user);

/* An answer to a conversation: `request` is the body of POST /v1/chat/completions. With "stream": true the events are
 * its chunks; otherwise there is one event, the whole answer. What is wrong with a request is an event, too:
 * {"error": {...}}, the last one.
 *   on_event  NULL: the events are read with carat_next() */
CARAT_API carat_request* carat_chat(carat_engine* engine, const char* request, carat_event_fn on_event, void* user,
                                    carat_error** error);
/* The same for text without a template: the body of POST /v1/completions. */
CARAT_API carat_request* carat_complete(carat_engine* engine, const char* request, carat_event_fn on_event, void* user,
                                        carat_error** error);

/* The next event. Waits for it, at most `seconds`; negative: as long as it takes. NULL: there was none in time, or
 * there are no more (carat_is_done() tells which), or there was no memory for it: it is still the next. Only for
 * requests without `on_event`. */
CARAT_API char* carat_next(carat_request* request, double seconds);
/* Waits for the end of a request that has `on_event`. Returns whether it came within `seconds`. */
CARAT_API int carat_wait(carat_request* request, double seconds);
CARAT_API int carat_is_done(const carat_request* request);
/* Nothing more comes of the request; the engine ends it within a pass. */
CARAT_API void carat_cancel(carat_request* request);
/* Cancels the request if it runs, and lets go of it. NULL: nothing. */
CARAT_API void carat_release(carat_request* request);

#ifdef __cplusplus
}
#endif

#endif

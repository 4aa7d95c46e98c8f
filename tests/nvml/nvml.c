/* Scripted libnvidia-ml.so.1: answers from the file that SCRIPTED_NVML names, which may change at any time.
 *
 * A line of the file is "KEY = VALUE". A key is the name of a call, after "gpu.N." or "gpu.N.mig.M." for calls of a
 * device, and with ".ARGUMENT" at its end where the answer depends on one. A value is what the call answers,
 * "error CODE", or "hang": then the call returns when the file says something else. "*" in place of the name stands for
 * all calls of that device, or of the library. A call without a line is not supported, as on a GPU that lacks it.
 *
 * Keys that are no calls: "module" and "library", the versions of the kernel module and of the installed library (a
 * process keeps the library that it has loaded), and "events": "NUMBER:GPU:TYPE:DATA ...", with growing numbers.
 *
 * Structures have the layouts of nvml.h; test_layouts.py compares them with those of nvidia-ml-py. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int nvmlReturn_t;
enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, LIB_RM_VERSION_MISMATCH = 18, ARGUMENT_VERSION_MISMATCH = 25,
};
enum { MAX_GPUS = 16, MAX_SLICES = 16, MAX_FILE = 1 << 18, MAX_VALUE = 8192, MAX_SETS = 64 };

typedef struct { int gpu, slice; } device;  /* slice -1: the whole GPU */
typedef device *nvmlDevice_t;
typedef struct { long delivered; unsigned registered; int used; } event_set;
typedef event_set *nvmlEventSet_t;

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
typedef struct {
    unsigned pid;
    unsigned long long timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device devices[MAX_GPUS][MAX_SLICES + 1];
static event_set sets[MAX_SETS];
static int initialised;
static char loaded_library[80];

/* ---- the file ---- */

static char content[MAX_FILE];
static struct stat content_of;

static void read_file(void) {
    const char *path = getenv("SCRIPTED_NVML");
    struct stat now;
    if (path == NULL || stat(path, &now) != 0) {
        content[0] = 0;
        return;
    }
    if (now.st_ino == content_of.st_ino && now.st_mtim.tv_nsec == content_of.st_mtim.tv_nsec &&
        now.st_mtim.tv_sec == content_of.st_mtim.tv_sec)
        return;
    FILE *file = fopen(path, "r");
    if (file == NULL) return;
    content[fread(content, 1, MAX_FILE - 1, file)] = 0;
    content_of = now;
    fclose(file);
}

/* The value of the key in the file as it is now. Returns 0 if there is none. */
static int look_up(const char *key, char *value) {
    size_t length = strlen(key);
    int found = 0;
    pthread_mutex_lock(&lock);
    read_file();
    for (const char *line = content; line != NULL && *line != 0 && !found; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) == 0 && strncmp(line + length, " = ", 3) == 0) {
            line += length + 3;
            size_t size = strcspn(line, "\n");
            if (size >= MAX_VALUE) size = MAX_VALUE - 1;
            memcpy(value, line, size);
            value[size] = 0;
            found = 1;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int device_key(char *key, const device *of, const char *name) {
    if (of == NULL) return snprintf(key, 256, "%s", name);
    if (of->slice < 0) return snprintf(key, 256, "gpu.%d.%s", of->gpu, name);
    return snprintf(key, 256, "gpu.%d.mig.%d.%s", of->gpu, of->slice, name);
}

/* Waits while the value is "hang". Returns whether the file has the key, and in `answer` the code of an "error". */
static int settled(const char *key, char *value, nvmlReturn_t *answer) {
    int found;
    while ((found = look_up(key, value)) && strcmp(value, "hang") == 0) usleep(10000);
    if (found && sscanf(value, "error %d", answer) != 1) *answer = SUCCESS;
    return found;
}

/* Whether the kernel module answers a library of this version. */
static nvmlReturn_t reach_module(void) {
    char module[MAX_VALUE];
    if (!look_up("module", module)) return DRIVER_NOT_LOADED;
    return strcmp(module, loaded_library) == 0 ? SUCCESS : LIB_RM_VERSION_MISMATCH;
}

/* The answer of a call, whose value is stored in `value`. `argument`: "" for a call without one. */
static nvmlReturn_t ask(const device *of, const char *call, const char *argument, char *value) {
    char key[256], ignored[MAX_VALUE];
    nvmlReturn_t answer = SUCCESS;
    if (!initialised) return UNINITIALIZED;
    if ((answer = reach_module()) != SUCCESS) return answer;
    if (settled("*", ignored, &answer) && answer != SUCCESS) return answer;
    if (of != NULL) {
        device whole = {of->gpu, -1};
        device_key(key, &whole, "*");
        if (settled(key, ignored, &answer) && answer != SUCCESS) return answer;
    }
    if (*argument) {
        char name[200];
        snprintf(name, sizeof name, "%s.%s", call, argument);
        device_key(key, of, name);
        if (settled(key, value, &answer)) return answer;
    }
    device_key(key, of, call);
    return settled(key, value, &answer) ? answer : NOT_SUPPORTED;
}

static nvmlReturn_t ask_text(const device *of, const char *call, char *text, unsigned size) {
    char value[MAX_VALUE];
    nvmlReturn_t answer = ask(of, call, "", value);
    if (answer != SUCCESS) return answer;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(text, value);
    return SUCCESS;
}

/* Up to 8 numbers, separated by spaces; the rest of `numbers` stays as it is. */
static nvmlReturn_t ask_numbers(const device *of, const char *call, const char *argument, unsigned long long *numbers) {
    char value[MAX_VALUE], *next = value;
    nvmlReturn_t answer = ask(of, call, argument, value);
    if (answer != SUCCESS) return answer;
    for (int n = 0; n < 8; n++) {
        char *end;
        unsigned long long number = strtoull(next, &end, 10);
        if (end == next) break;
        numbers[n] = number;
        next = end;
    }
    return SUCCESS;
}

#define NUMBER(call, type)                                                    \
    nvmlReturn_t call(nvmlDevice_t of, type *number) {                        \
        unsigned long long numbers[8] = {0};                                  \
        nvmlReturn_t answer = ask_numbers(of, #call, "", numbers);            \
        if (answer == SUCCESS) *number = (type)numbers[0];                    \
        return answer;                                                        \
    }
#define TWO_NUMBERS(call, type)                                               \
    nvmlReturn_t call(nvmlDevice_t of, type *one, type *other) {              \
        unsigned long long numbers[8] = {0};                                  \
        nvmlReturn_t answer = ask_numbers(of, #call, "", numbers);            \
        if (answer == SUCCESS) *one = (type)numbers[0], *other = (type)numbers[1]; \
        return answer;                                                        \
    }
#define NUMBER_OF(call, type)                                                 \
    nvmlReturn_t call(nvmlDevice_t of, unsigned which, type *number) {        \
        unsigned long long numbers[8] = {0};                                  \
        char argument[16];                                                    \
        snprintf(argument, sizeof argument, "%u", which);                     \
        nvmlReturn_t answer = ask_numbers(of, #call, argument, numbers);      \
        if (answer == SUCCESS) *number = (type)numbers[0];                    \
        return answer;                                                        \
    }
#define TEXT(call)                                                            \
    nvmlReturn_t call(nvmlDevice_t of, char *text, unsigned size) { return ask_text(of, #call, text, size); }

/* ---- the library ---- */

__attribute__((constructor)) static void load(void) {
    char value[MAX_VALUE];
    if (look_up("library", value)) snprintf(loaded_library, sizeof loaded_library, "%.79s", value);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        for (int slice = -1; slice < MAX_SLICES; slice++) devices[gpu][slice + 1] = (device){gpu, slice};
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    char value[MAX_VALUE];
    nvmlReturn_t answer;
    (void)flags;
    if (settled("*", value, &answer) && answer != SUCCESS) return answer;
    if (settled("nvmlInitWithFlags", value, &answer) && answer != SUCCESS) return answer;
    if ((answer = reach_module()) != SUCCESS) return answer;
    initialised++;
    return SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    if (!initialised) return UNINITIALIZED;
    if (--initialised == 0) memset(sets, 0, sizeof sets);
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
        case SUCCESS: return "Success";
        case UNINITIALIZED: return "Uninitialized";
        case INVALID_ARGUMENT: return "Invalid Argument";
        case NOT_SUPPORTED: return "Not Supported";
        case 4: return "Insufficient Permissions";
        case NOT_FOUND: return "Not Found";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case TIMEOUT: return "Timeout";
        case 15: return "GPU is lost";
        case 16: return "GPU requires reset";
        case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
        default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned size) {
    return ask_text(NULL, "nvmlSystemGetDriverVersion", text, size);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    return ask_text(NULL, "nvmlSystemGetNVMLVersion", text, size);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    unsigned long long numbers[8] = {0};
    nvmlReturn_t answer = ask_numbers(NULL, "nvmlSystemGetCudaDriverVersion_v2", "", numbers);
    *version = (int)numbers[0];
    return answer;
}

/* ---- handles ---- */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    unsigned long long numbers[8] = {0};
    nvmlReturn_t answer = ask_numbers(NULL, "nvmlDeviceGetCount", "", numbers);
    *count = (unsigned)numbers[0];
    return answer;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle) {
    unsigned count;
    char value[MAX_VALUE];
    nvmlReturn_t answer = nvmlDeviceGetCount_v2(&count);
    if (answer != SUCCESS) return answer;
    if (index >= count || index >= MAX_GPUS) return INVALID_ARGUMENT;
    *handle = &devices[index][0];
    answer = ask(*handle, "nvmlDeviceGetHandleByIndex", "", value);
    return answer == NOT_SUPPORTED ? SUCCESS : answer;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle) {
    unsigned count;
    char key[256], value[MAX_VALUE];
    nvmlReturn_t answer = nvmlDeviceGetCount_v2(&count);
    if (answer != SUCCESS) return answer;
    for (unsigned gpu = 0; gpu < count && gpu < MAX_GPUS; gpu++)
        for (int slice = 0; slice <= MAX_SLICES; slice++) {
            device *one = &devices[gpu][slice];
            device_key(key, one, "nvmlDeviceGetUUID");
            if (look_up(key, value) && strcmp(value, uuid) == 0) {
                *handle = one;
                answer = ask(one, "nvmlDeviceGetHandleByUUID", "", value);
                return answer == NOT_SUPPORTED ? SUCCESS : answer;
            }
        }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t of, unsigned index, nvmlDevice_t *handle) {
    char key[256], value[MAX_VALUE], argument[16];
    snprintf(argument, sizeof argument, "%u", index);
    nvmlReturn_t answer = ask(of, "nvmlDeviceGetMigDeviceHandleByIndex", argument, value);
    if (answer != SUCCESS && answer != NOT_SUPPORTED) return answer;
    if (index >= MAX_SLICES) return INVALID_ARGUMENT;
    *handle = &devices[of->gpu][index + 1];
    device_key(key, *handle, "nvmlDeviceGetUUID");
    return look_up(key, value) ? SUCCESS : NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t of, nvmlDevice_t *handle) {
    if (of->slice < 0) return INVALID_ARGUMENT;
    *handle = &devices[of->gpu][0];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t of, unsigned *is_slice) {
    *is_slice = of->slice >= 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t of, unsigned *index) {
    *index = of->slice < 0 ? (unsigned)of->gpu : (unsigned)of->slice;
    return SUCCESS;
}

/* ---- what a device is ---- */

TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetSerial)
NUMBER(nvmlDeviceGetMinorNumber, unsigned)
NUMBER(nvmlDeviceGetBrand, unsigned)
NUMBER(nvmlDeviceGetArchitecture, unsigned)
TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability, int)
TWO_NUMBERS(nvmlDeviceGetMigMode, unsigned)
TWO_NUMBERS(nvmlDeviceGetEccMode, unsigned)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned)
NUMBER(nvmlDeviceGetGpuInstanceId, unsigned)
NUMBER(nvmlDeviceGetComputeInstanceId, unsigned)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned)

static nvmlReturn_t pci(const device *of, const char *call, const char *argument, nvmlPciInfo_t *info) {
    char value[MAX_VALUE];
    nvmlReturn_t answer = ask(of, call, argument, value);
    if (answer != SUCCESS) return answer;
    memset(info, 0, sizeof *info);
    sscanf(value, "%15s %u %u %u %u %u %31s", info->busIdLegacy, &info->domain, &info->bus, &info->device,
           &info->pciDeviceId, &info->pciSubSystemId, info->busId);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t of, nvmlPciInfo_t *info) {
    return pci(of, "nvmlDeviceGetPciInfo", "", info);
}

NUMBER_OF(nvmlDeviceGetNvLinkState, unsigned)
NUMBER_OF(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned)
NUMBER_OF(nvmlDeviceGetNvLinkVersion, unsigned)

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t of, unsigned link, nvmlPciInfo_t *info) {
    char argument[16];
    snprintf(argument, sizeof argument, "%u", link);
    return pci(of, "nvmlDeviceGetNvLinkRemotePciInfo", argument, info);
}

/* ---- how a device is used ---- */

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t of, nvmlMemory_t *memory) {
    unsigned long long numbers[8] = {0};
    nvmlReturn_t answer = ask_numbers(of, "nvmlDeviceGetMemoryInfo", "", numbers);
    if (answer == SUCCESS) *memory = (nvmlMemory_t){numbers[0], numbers[1], numbers[2]};
    return answer;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t of, nvmlMemory_v2_t *memory) {
    unsigned long long numbers[8] = {0};
    if (memory->version != (sizeof *memory | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t answer = ask_numbers(of, "nvmlDeviceGetMemoryInfo_v2", "", numbers);
    if (answer == SUCCESS)
        *memory = (nvmlMemory_v2_t){memory->version, numbers[0], numbers[1], numbers[2], numbers[3]};
    return answer;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t of, nvmlUtilization_t *rates) {
    unsigned long long numbers[8] = {0};
    nvmlReturn_t answer = ask_numbers(of, "nvmlDeviceGetUtilizationRates", "", numbers);
    if (answer == SUCCESS) *rates = (nvmlUtilization_t){(unsigned)numbers[0], (unsigned)numbers[1]};
    return answer;
}

NUMBER_OF(nvmlDeviceGetTemperature, unsigned)
NUMBER_OF(nvmlDeviceGetTemperatureThreshold, unsigned)
NUMBER(nvmlDeviceGetPowerUsage, unsigned)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long)

/* Processes are "PID:BYTES[:GPU INSTANCE:COMPUTE INSTANCE]"; "?" for memory that the driver does not know. */
static nvmlReturn_t processes(const device *of, const char *call, unsigned *count, nvmlProcessInfo_t *infos) {
    char value[MAX_VALUE], *rest = value, *word;
    unsigned found = 0, room = *count;
    nvmlReturn_t answer = ask(of, call, "", value);
    if (answer != SUCCESS) return answer;
    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        nvmlProcessInfo_t one = {0, ~0ull, ~0u, ~0u};
        if (sscanf(word, "%u:%llu:%u:%u", &one.pid, &one.usedGpuMemory, &one.gpuInstanceId, &one.computeInstanceId) < 1)
            continue;
        if (found < room && infos != NULL) infos[found] = one;
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t of, unsigned *count, nvmlProcessInfo_t *infos) {
    return processes(of, "nvmlDeviceGetComputeRunningProcesses", count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t of, unsigned *count, nvmlProcessInfo_t *infos) {
    return processes(of, "nvmlDeviceGetGraphicsRunningProcesses", count, infos);
}

/* Samples are "PID:MICROSECONDS:SM:MEMORY:ENCODER:DECODER". Those since the time given; none is an error. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t of, nvmlProcessUtilizationSample_t *samples, unsigned *count,
                                             unsigned long long since) {
    char value[MAX_VALUE], *rest = value, *word;
    unsigned found = 0, room = *count;
    nvmlReturn_t answer = ask(of, "nvmlDeviceGetProcessUtilization", "", value);
    if (answer != SUCCESS) return answer;
    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        nvmlProcessUtilizationSample_t one = {0};
        sscanf(word, "%u:%llu:%u:%u:%u:%u", &one.pid, &one.timeStamp, &one.smUtil, &one.memUtil, &one.encUtil,
               &one.decUtil);
        if (one.timeStamp <= since) continue;
        if (found < room && samples != NULL) samples[found] = one;
        found++;
    }
    *count = found;
    if (found == 0) return NOT_FOUND;
    return found > room || samples == NULL ? INSUFFICIENT_SIZE : SUCCESS;
}

/* ---- faults ---- */

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t of, unsigned kind, unsigned counter, unsigned long long *errors) {
    unsigned long long numbers[8] = {0};
    char argument[32];
    snprintf(argument, sizeof argument, "%u.%u", kind, counter);
    nvmlReturn_t answer = ask_numbers(of, "nvmlDeviceGetTotalEccErrors", argument, numbers);
    *errors = numbers[0];
    return answer;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t of, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                       unsigned *failed) {
    unsigned long long numbers[8] = {0};
    nvmlReturn_t answer = ask_numbers(of, "nvmlDeviceGetRemappedRows", "", numbers);
    if (answer != SUCCESS) return answer;
    *corrected = (unsigned)numbers[0], *uncorrected = (unsigned)numbers[1];
    *pending = (unsigned)numbers[2], *failed = (unsigned)numbers[3];
    return SUCCESS;
}

/* The first event after number `after`. Returns its number, or 0. */
static long next_event(long after, int *gpu, unsigned long long *type, unsigned long long *data) {
    char value[MAX_VALUE], *rest = value, *word;
    if (!look_up("events", value)) return 0;
    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        long number = 0;
        if (sscanf(word, "%ld:%d:%llu:%llu", &number, gpu, type, data) == 4 && number > after) return number;
    }
    return 0;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    char value[MAX_VALUE];
    int gpu;
    unsigned long long type, data;
    nvmlReturn_t answer = ask(NULL, "nvmlEventSetCreate", "", value);
    if (answer != SUCCESS) return answer;
    for (int n = 0; n < MAX_SETS; n++)
        if (!sets[n].used) {
            long last = 0, number;
            while ((number = next_event(last, &gpu, &type, &data)) != 0) last = number;
            sets[n] = (event_set){last, 0, 1};
            *set = &sets[n];
            return SUCCESS;
        }
    return 999;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    set->used = 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t of, unsigned long long types, nvmlEventSet_t set) {
    char value[MAX_VALUE], argument[32];
    if (!set->used) return INVALID_ARGUMENT;
    snprintf(argument, sizeof argument, "%llu", types);
    nvmlReturn_t answer = ask(of, "nvmlDeviceRegisterEvents", argument, value);
    if (answer == SUCCESS) set->registered |= 1u << of->gpu;
    return answer;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *event, unsigned timeout_ms) {
    char value[MAX_VALUE];
    int gpu;
    unsigned long long type, data;
    long number;
    (void)timeout_ms;
    if (!set->used) return INVALID_ARGUMENT;
    nvmlReturn_t answer = ask(NULL, "nvmlEventSetWait_v2", "", value);
    if (answer != SUCCESS && answer != NOT_SUPPORTED) return answer;
    while ((number = next_event(set->delivered, &gpu, &type, &data)) != 0) {
        set->delivered = number;
        if (!(set->registered & 1u << gpu)) continue;
        *event = (nvmlEventData_t){&devices[gpu][0], type, data, ~0u, ~0u};
        return SUCCESS;
    }
    return TIMEOUT;
}

/* ---- for test_layouts.py ---- */

#include <stddef.h>
#define SIZE(type) {#type, "", sizeof(type)}
#define FIELD(type, name) {#type, #name, offsetof(type, name)}
const struct { const char *type, *field; size_t value; } scripted_layouts[] = {
    SIZE(nvmlMemory_t), FIELD(nvmlMemory_t, used), SIZE(nvmlMemory_v2_t), FIELD(nvmlMemory_v2_t, total),
    FIELD(nvmlMemory_v2_t, used), SIZE(nvmlUtilization_t), FIELD(nvmlUtilization_t, memory), SIZE(nvmlPciInfo_t),
    FIELD(nvmlPciInfo_t, domain), FIELD(nvmlPciInfo_t, busId), SIZE(nvmlProcessInfo_t),
    FIELD(nvmlProcessInfo_t, usedGpuMemory), FIELD(nvmlProcessInfo_t, computeInstanceId),
    SIZE(nvmlProcessUtilizationSample_t), FIELD(nvmlProcessUtilizationSample_t, timeStamp),
    FIELD(nvmlProcessUtilizationSample_t, smUtil), SIZE(nvmlEventData_t), FIELD(nvmlEventData_t, eventType),
    FIELD(nvmlEventData_t, computeInstanceId), {NULL, NULL, 0},
};

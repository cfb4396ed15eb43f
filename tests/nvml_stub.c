/* A scripted libnvidia-ml.so.1, for tests of what the driver can do to us.

   NVML_SCRIPT names a text file that is read again at every call:
     gpu UUID TOTAL FREE        a device, in bytes
     mig UUID TOTAL FREE        a slice; the device before it is then in MIG mode
     rc FUNCTION CODE           what FUNCTION returns, without doing anything
     sleep FUNCTION MS          how long FUNCTION takes
     xid UUID CODE              a fault, reported once, to who has asked for it
   build: cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml_stub.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long bytes;
struct memory_1 { bytes total, free, used; };
struct memory_2 { unsigned version; bytes total, reserved, free, used; };
struct event { void *device; unsigned long long type, data; unsigned gpu_instance, instance; };
struct device { char uuid[96]; bytes total, free; int parent, is_cut, is_watched; };

enum { ROOM = 16, OK = 0, INVALID = 2, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, LOST = 15, VERSION = 25 };
static struct device devices[ROOM];
static int count, reported;
static struct { char uuid[96]; int code; } xids[ROOM];
static int xid_count;

/* Reads the script; the code that `function` must return before it does anything. */
static int begin(const char *function) {
    const char *path = getenv("NVML_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], word[96];
    int number, code = OK, ms = 0, parent = -1;
    if (!file) return DRIVER_NOT_LOADED;
    count = xid_count = 0;
    while (fgets(line, sizeof line, file)) {
        struct device *next = &devices[count];
        if (sscanf(line, "rc %95s %d", word, &number) == 2) {
            if (!strcmp(word, function)) code = number;
        } else if (sscanf(line, "sleep %95s %d", word, &number) == 2) {
            if (!strcmp(word, function)) ms = number;
        } else if (xid_count < ROOM && sscanf(line, "xid %95s %d", word, &number) == 2) {
            strcpy(xids[xid_count].uuid, word);
            xids[xid_count++].code = number;
        } else if (count < ROOM && sscanf(line, "%7s %95s %llu %llu", word, next->uuid, &next->total,
                                          &next->free) == 4) {
            next->is_cut = 0;
            next->parent = -1;
            if (!strcmp(word, "mig")) { next->parent = parent; devices[parent].is_cut = 1; }
            else parent = count;
            count++;
        }
    }
    fclose(file);
    if (ms) usleep(1000u * ms);
    return code;
}

#define BEGIN(name) int code = begin(name); if (code) return code
#define DEVICE(handle) \
    long place = (long)(handle) - 1; \
    if (place < 0 || place >= count) return LOST; \
    struct device *device = &devices[place]

static int nth(int parent, unsigned wanted, void **handle) {
    for (int i = 0; i < count; i++)
        if (devices[i].parent == parent && !wanted--) { *handle = (void *)(long)(i + 1); return OK; }
    return parent < 0 ? INVALID : NOT_FOUND;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return begin("nvmlInit"); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "stub error %d", code);
    return text;
}
int nvmlDeviceGetCount_v2(unsigned *found) {
    BEGIN("nvmlDeviceGetCount");
    for (int i = *found = 0; i < count; i++) *found += devices[i].parent < 0;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    BEGIN("nvmlDeviceGetHandleByIndex");
    return nth(-1, index, handle);
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *whole, unsigned index, void **handle) {
    BEGIN("nvmlDeviceGetMigDeviceHandleByIndex");
    return nth((int)(long)whole - 1, index, handle);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    BEGIN("nvmlDeviceGetHandleByUUID");
    for (int i = 0; i < count; i++)
        if (!strcmp(uuid, devices[i].uuid)) { *handle = (void *)(long)(i + 1); return OK; }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    BEGIN("nvmlDeviceGetUUID");
    DEVICE(handle);
    snprintf(text, size, "%s", device->uuid);
    return OK;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    BEGIN("nvmlDeviceGetName");
    DEVICE(handle);
    snprintf(text, size, device->parent < 0 ? "Stub GPU" : "Stub slice");
    return OK;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    BEGIN("nvmlDeviceGetMigMode");
    DEVICE(handle);
    *current = *pending = device->is_cut;
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *handle, struct memory_1 *memory) {
    BEGIN("nvmlDeviceGetMemoryInfo");
    DEVICE(handle);
    memory->total = device->total;
    memory->free = device->free;
    memory->used = device->total - device->free;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_2 *memory) {
    BEGIN("nvmlDeviceGetMemoryInfo_v2");
    if (memory->version != 0x02000028u) return VERSION;
    DEVICE(handle);
    memory->total = device->total;
    memory->free = device->free;
    memory->reserved = 0;
    memory->used = device->total - device->free;
    return OK;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **whole) {
    BEGIN("nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    DEVICE(slice);
    if (device->parent < 0) return INVALID;
    *whole = (void *)(long)(device->parent + 1);
    return OK;
}
int nvmlEventSetCreate(void **set) {
    BEGIN("nvmlEventSetCreate");
    *set = (void *)&reported;
    reported = 0;
    for (int i = 0; i < count; i++) devices[i].is_watched = 0;
    return OK;
}
int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) {
    (void)set;
    BEGIN("nvmlDeviceRegisterEvents");
    DEVICE(handle);
    if (device->parent >= 0 || types != 8) return INVALID;
    device->is_watched = 1;
    return OK;
}
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned ms) {
    (void)set, (void)ms;
    BEGIN("nvmlEventSetWait");
    while (reported < xid_count) {
        int at = reported++;
        for (int i = 0; i < count; i++)
            if (devices[i].is_watched && !strcmp(devices[i].uuid, xids[at].uuid)) {
                *event = (struct event){(void *)(long)(i + 1), 8, (unsigned)xids[at].code, -1u, -1u};
                return OK;
            }
    }
    return TIMEOUT;
}

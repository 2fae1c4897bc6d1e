from marks import mark

import echoq_django as echoq


@echoq.task(name="kept")
def kept(i, pad):
    mark(i)


@echoq.task(name="forgotten", retain=0)
def forgotten(i, pad):
    mark(i)
